// SPDX-License-Identifier: Apache-2.0
// Control packets: register accesses that travel as packets to the control port of a tile.
//
// A stream that enters a packet-switched port is a row of packets. The stream header of the first
// comes from a BD with "enable packet", every other header from the data. Where the id leads to
// control ports, the packet is [stream header][control header][data words] and ends by the count in
// its control header, so that one BD may hold many; where it leads to DMAs, the packet lasts until
// TLAST. tests/array_model/README.md (Readings) says what of this is certain.
//
// Time: the words of a packet pass at the rate of the stream, after the way through the switches
// when the stream stood still; the accesses happen when the last word is there.
#include <algorithm>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "onedispatch/phrases.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {
namespace {

namespace field = reg::control_packet;
namespace operation = reg::control_operation;

constexpr size_t kHeaders = 2;  // stream header, control header
// A token: a header, and one word that says which task ended.
constexpr uint64_t kTokenWords = 1;

bool odd_parity(uint32_t word) {
  uint32_t ones = 0;
  for (; word != 0; word &= word - 1) ++ones;
  return ones % 2 == 1;
}

uint32_t beats_of(uint32_t control) { return static_cast<uint32_t>(field::beats.get(control)); }

size_t length_by(uint32_t control) {
  return kHeaders + (field::operation.get(control) == operation::READ ? 0 : beats_of(control));
}

size_t length_of(const std::vector<uint32_t>& packet) {
  return packet.size() < kHeaders ? kHeaders : length_by(packet[1]);
}

}  // namespace

uint32_t make_packet_header(uint32_t id, uint32_t type, const Tile& from) {
  uint32_t word = reg::packet_header::id.set(0, id);
  word = reg::packet_header::type.set(word, type);
  word = reg::packet_header::source_row.set(word, from.row);
  word = reg::packet_header::source_column.set(word, from.column);
  return odd_parity(word) ? word : reg::packet_header::parity.set(word, 1);
}

void Array::fail_packet(const Channel& s, const std::string& given, const std::string& accepted) const {
  fail(s, "packet",
       {"packet of " + channel_name(s) + " BD " + std::to_string(s.bd_id), given, accepted,
        "Check the words that the BD sends: whole packets, headers with odd parity."});
}

// A packet may begin, or go on, on a stream whose route says that ids or control ports matter. True:
// it leads to DMAs, and its data moves as that of any stream.
bool Array::start_packet(Channel& s) {
  if (!s.packet_open) {
    if (!s.header_due && !header_from_data(s)) return true;
    if (!open_packet(s)) return false;
  }
  if (s.packet_words.empty()) {
    if (s.header_due) {
      s.packet_words.push_back(s.header_word);
    } else {
      take_packet_words(s, 1);
      if (s.region) serve_ddr(s, 1);
      s.header_due = true;  // begin_segment charges it, wherever it comes from
    }
  }
  const uint64_t rest = std::min<uint64_t>(length_ahead(s) - s.packet_words.size(), s.words_left);
  begin_segment(s, false, rest, std::max(now, s.ready_time));
  return false;
}

// Words of the packet; a control header that the BD has next is looked at before it is taken, so that what it counts
// moves with it. What is unwritten there, or wrong, is refused when it is taken.
size_t Array::length_ahead(Channel& s) {
  if (s.packet_words.size() + 1 != kHeaders || s.words_left == 0) return length_of(s.packet_words);
  settle_jobs(s);
  const uint8_t* const at = s.cursor.readable(1);
  return at == nullptr ? kHeaders : length_by(load32(at));
}

// Reads the id from the data and follows it. False: to DMAs; then the header is consumed.
bool Array::header_from_data(Channel& s) {
  settle_jobs(s);
  uint8_t bytes[4];
  Cursor ahead = s.cursor;
  const uint64_t unwritten = ahead.gather(bytes, 1);
  if (unwritten != Cursor::kAllWritten && !options_.replay) fail_unwritten(s, unwritten);
  const uint32_t header = load32(bytes);
  if (!odd_parity(header)) fail_packet(s, "the stream header " + hex(header), "odd parity");
  s.route = find_route(s, true, static_cast<uint32_t>(reg::packet_header::id.get(header)));
  if (!s.route->controls.empty()) return true;
  s.header_word = header;
  s.header_due = true;
  s.cursor = ahead;
  --s.words_left;
  s.bytes += 4;
  if (s.region) {
    s.region->bytes_read += 4;
    serve_ddr(s, 1);
  }
  if (s.words_left == 0)
    fail(s, "unsupported",
         {channel_name(s) + " BD " + std::to_string(s.bd_id),
          "the header of a packet for a DMA as the last word of a BD", "the header and data in one BD",
          "Let the BD hold at least one word of data."});
  return false;
}

void Array::take_packet_words(Channel& s, uint64_t words) {
  settle_jobs(s);
  const size_t before = s.packet_words.size();
  s.packet_words.resize(before + words);
  const uint64_t unwritten = s.cursor.gather(reinterpret_cast<uint8_t*>(s.packet_words.data() + before), words);
  if (unwritten != Cursor::kAllWritten && !options_.replay) fail_unwritten(s, unwritten);
  s.words_left -= words;
  s.bytes += words * 4;
  if (s.region) s.region->bytes_read += words * 4;
}

void Array::finish_packet_segment(Channel& s) {
  const uint32_t generation = s.generation;
  take_packet_words(s, s.segment_words);
  s.busy += now - s.segment_start;
  s.last_end = now;
  if (s.packet_words.size() >= kHeaders) check_control_header(s);
  const size_t length = length_of(s.packet_words);
  if (s.packet_words.size() > length)
    fail_packet(s, "a control header that changed while its packet moved", "memory that stays as it is until it was sent");
  if (s.packet_words.size() == length) {
    std::vector<uint32_t> packet = std::move(spare_packet_);  // keeps its room from packet to packet
    packet.clear();
    packet.swap(s.packet_words);
    for (const uint32_t tile : s.route->controls) execute_packet(s, tiles_[tile], packet);
    spare_packet_ = std::move(packet);
    ++packets;
    if (s.generation != generation) return;  // it reset the channel that it came from
    release_arbiters(s);
    s.route = nullptr;
  }
  if (s.words_left == 0 && !s.packet_words.empty() &&
      (!s.bd.suppress_tlast || (!s.bd.use_next && s.repeats_left == 1)))
    fail_packet(s,
                "a packet cut off after " + std::to_string(s.packet_words.size()) + " of " +
                    (s.packet_words.size() < kHeaders ? "at least " : "") +
                    counted(length_of(s.packet_words), "word") + " by the end of the " +
                    (s.bd.suppress_tlast ? "task" : "BD"),
                "packets that are complete before TLAST and before the task ends");
  s.state = ChannelState::kReady;
  changed(s.tile);
  if (s.words_left == 0) return finish_bd(s);
  try_start(s);
}

void Array::check_control_header(const Channel& s) const {
  const uint32_t control = s.packet_words[1];
  if (!odd_parity(control)) fail_packet(s, "the control header " + hex(control), "odd parity");
  if (field::operation.get(control) > operation::WRITE_INCREMENT)
    fail_packet(s, "operation 3 in the control header " + hex(control), "0 write, 1 read, 2 write");
}

// As the same WRITEs of a transaction; their op is the one that pushed the task.
void Array::execute_packet(const Channel& s, const Tile& tile, const std::vector<uint32_t>& packet) {
  const uint32_t control = packet[1];
  const OpRef op = s.task.op, outer = current_op;
  const uint64_t tile_address =
      uint64_t{tile.column} << reg::COLUMN_SHIFT | uint64_t{tile.row} << reg::ROW_SHIFT;
  std::vector<uint32_t> answer;
  current_op = op;
  try {
    const auto offset = static_cast<uint32_t>(field::offset.get(control));
    const uint32_t beats = beats_of(control), inside = std::min(beats, (reg::OFFSET_MASK + 1 - offset) / 4);
    if (field::operation.get(control) == operation::READ) {
      for (uint32_t beat = 0; beat < inside; ++beat) answer.push_back(read(tile_address | (offset + 4 * beat)));
    } else {
      write_block(tile_address | offset, reinterpret_cast<const uint8_t*>(packet.data() + kHeaders), inside, op);
    }
    if (inside < beats)
      fail_packet(s, "offset " + hex(offset + 4 * inside) + " of " + tile_name(tile.index), "offsets up to 0xFFFFC");
    if (!answer.empty())
      queue_answer(tile, Answer{static_cast<uint32_t>(field::return_id.get(control)), std::move(answer), op});
  } catch (SimulationError& error) {
    current_op = outer;
    error.op = error.op.index < 0 ? op : error.op;
    error.complaint.where = "control packet " + hex(packet[0]) + " " + hex(control) + " of " +
                            channel_name(s) + " BD " + std::to_string(s.bd_id) + ": " + error.complaint.where;
    SimulationError full(error.kind, error.complaint, error.column, error.row);
    full.op = error.op;
    full.register_name = error.register_name;
    full.status = error.status;
    throw full;
  }
  current_op = outer;
  changed(tile.index);
}

// --- Answers of reads, and tokens: packets from the control slave port of the tile --------------------------

void Array::queue_answer(const Tile& tile, Answer answer) {
  AnswerPort& port = answer_ports_[tile.index];
  Channel& c = channels_[tile.answers];
  const Route* route = find_route(c, true, answer.id);  // an error of the packet that asks
  if (!route->controls.empty() || route->controller)
    fail(c, "unsupported",
         {channel_name(c),
          std::string("an answer that is routed to ") + (route->controller ? "the controller" : "a control port"),
          "answers to an S2MM channel",
          "Give the read another return id, or the id another route."});
  port.waiting.push_back(std::move(answer));
  if (!c.running) start_answer(c);
}

void Array::start_answer(Channel& c) {
  AnswerPort& port = answer_ports_[c.tile];
  const Answer answer = std::move(port.waiting.front());
  port.waiting.pop_front();
  const auto words = static_cast<uint32_t>(answer.words.size());
  port.memory = Memory(words * 4);
  for (uint32_t i = 0; i < words; ++i) store32(&port.memory.bytes[size_t{4} * i], answer.words[i]);
  port.memory.valid.mark(0, words);
  if (!c.running) c.active_since = now;
  c.running = true;
  c.task = Task{};
  c.task.op = answer.op;
  c.bd = Bd{};
  c.bd.packet = true;
  c.bd.packet_id = answer.id;
  c.bd.shape.count = 1;
  c.bd.shape.length = words;
  c.cursor = Cursor(resolve(c.bd.shape), port.memory.bytes.data(), &port.memory.valid, 0);
  c.token_of = answer.token_of;
  c.words_left = answer.token_of == kNone ? words : kTokenWords;
  c.ready_time = now;
  c.route = nullptr;
  c.header_due = true;
  c.header_word = make_packet_header(answer.id, 0, tiles_[c.tile]);
  c.state = ChannelState::kReady;
  changed(c.tile);
  try_start(c);
}

void Array::finish_answer(Channel& c) {
  release_arbiters(c);
  changed(c.tile);
  if (!answer_ports_[c.tile].waiting.empty()) return start_answer(c);
  c.running = false;
  c.state = ChannelState::kIdle;
  c.active += now - c.active_since;
}

}  // namespace onedispatch::sim
