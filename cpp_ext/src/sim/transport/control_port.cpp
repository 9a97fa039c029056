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
// when the stream stood still; the port takes stream.control_packet_cycles for each packet, and the stream waits
// that long. The accesses happen at the end of that. Packets for one place that follow
// each other and only write descriptors or programs are one segment, as data is, and happen together.
#include <algorithm>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "onedispatch/text.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {
namespace {

namespace field = reg::control_packet;
namespace operation = reg::control_operation;

constexpr size_t kHeaders = 2;  // stream header, control header
// A token: a header, and one word that says which task ended.
constexpr uint64_t kTokenWords = 1;

bool odd_parity(uint32_t word) { return __builtin_parity(word) == 1; }

// Whether the words from `first` to `last` are of the first `count` of a tile's descriptors, all of them.
[[gnu::always_inline]] inline bool among(const Block& bds, size_t count, uint32_t first, uint32_t last) {
  const bool has_gaps = bds.stride != bds.size;
  if (!bds.contains(first) || !bds.contains(last) || bds.index(last) >= count) return false;
  return !has_gaps || bds.index(first) == bds.index(last);
}

bool in_bds(const Tile& tile, uint32_t first, uint32_t last) {
  switch (tile.kind) {  // so that each divides by constants
    case TileKind::kShim: return among(reg::shim::DMA_BD, tile.bds.size(), first, last);
    case TileKind::kMem: return among(reg::mem::DMA_BD, tile.bds.size(), first, last);
    case TileKind::kCore: break;
  }
  return among(reg::core::DMA_BD, tile.bds.size(), first, last);
}

bool in_program(const Tile& tile, uint32_t first, uint32_t last) {
  const Block& program = reg::core::PROGRAM_MEMORY;
  return program.contains(first) && program.contains(last) && program.byte(last) / 4 < tile.program.size();
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
  const bool begins = s.packet_words.empty();
  if (begins) {
    if (s.header_due) {
      s.packet_words.push_back(s.header_word);
    } else {
      take_packet_words(s, 1);
      if (s.region) serve_ddr(s, 1);
      s.header_due = true;  // begin_segment charges it, wherever it comes from
    }
  }
  const uint64_t rest = std::min<uint64_t>(length_ahead(s) - s.packet_words.size(), s.words_left);
  const Run run = with_further_packets(s, rest);
  begin_segment(s, false, run.words, std::max(now, s.ready_time), run.further + (begins ? 1 : 0));
  return false;
}

// `first` words, the rest of a packet, and of those behind it that go the same way, where all of them write what
// waits for another access to matter. Where others might send in between, each packet is alone.
Array::Run Array::with_further_packets(Channel& s, uint64_t first) {
  if (s.packet_words.size() != 1 || first < kHeaders || s.route->shared) return {first, 0};
  const auto [at, most] = executor_->ahead(s, std::min(s.words_left, timing_.ddr_segment_words));
  if (most == 0 || !writes_at_leisure(*s.route, load32(at))) return {first, 0};
  Run run{first, 0};
  while (run.words + kHeaders <= most && load32(at + 4 * run.words) == s.packet_words[0]) {
    const uint32_t control = load32(at + 4 * run.words + 4);
    if (run.words + length_by(control) > most || !writes_at_leisure(*s.route, control)) break;
    run.words += length_by(control);
    ++run.further;
  }
  return run;
}

// Whether a packet writes descriptors or programs: they are read only once a task, or an enabled core, names them.
bool Array::writes_at_leisure(const Route& route, uint32_t control) const {
  if (!odd_parity(control) || field::operation.get(control) != operation::WRITE) return false;
  const auto first = static_cast<uint32_t>(field::offset.get(control)), last = first + 4 * beats_of(control) - 4;
  return std::all_of(route.control_kinds.begin(), route.control_kinds.end(), [&](uint32_t tile) {
    return in_bds(tiles_[tile], first, last) || in_program(tiles_[tile], first, last);
  });
}

// Words of the packet; a control header that the BD has next is looked at before it is taken, so that what it counts
// moves with it. What is unwritten there, or wrong, is refused when it is taken.
size_t Array::length_ahead(Channel& s) {
  if (s.packet_words.size() + 1 != kHeaders || s.words_left == 0) return length_of(s.packet_words);
  const auto [at, known] = executor_->ahead(s, 1);
  return known == 0 ? kHeaders : length_by(load32(at));
}

// Reads the id from the data and follows it. False: to DMAs; then the header is consumed.
bool Array::header_from_data(Channel& s) {
  uint32_t header = executor_->peek(s);
  if (!odd_parity(header)) fail_packet(s, "the stream header " + hex(header), "odd parity");
  s.route = find_route(s, true, static_cast<uint32_t>(reg::packet_header::id.get(header)));
  if (!s.route->controls.empty()) return true;
  executor_->take(s, &header, 1);
  s.header_word = header;
  s.header_due = true;
  --s.words_left;
  s.bytes += 4;
  if (s.region) {
    count_ddr(s, 1);
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
  const size_t before = s.packet_words.size();
  s.packet_words.resize(before + words);
  executor_->take(s, s.packet_words.data() + before, words);
  s.words_left -= words;
  s.bytes += words * 4;
  count_ddr(s, words);
}

void Array::finish_packet_segment(Channel& s) {
  const uint32_t generation = s.generation;
  take_packet_words(s, s.segment_words);
  s.busy += now - s.segment_start;
  s.last_end = now;
  if (options_.trace) {
    trace_.flow(s.index).ready = now;
    trace_.flow(s.index).packets = true;
  }
  if (execute_packets(s)) {
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

// The packets that are whole. False: there is none yet.
bool Array::execute_packets(Channel& s) {
  std::vector<uint32_t> words = std::move(spare_packet_);  // keeps its room from packet to packet
  words.clear();
  words.swap(s.packet_words);
  size_t at = 0;
  while (words.size() - at >= kHeaders) {
    const uint32_t* const packet = words.data() + at;
    check_control_header(s, packet[1]);
    if (words.size() - at < length_by(packet[1])) break;
    at += length_by(packet[1]);
    ++packets;
    packet_data_.assign(packet + kHeaders, packet + length_by(packet[1]));
    at = join_writes(words, at, packet[1]);
    for (const uint32_t tile : s.route->controls) execute_packet(s, tiles_[tile], packet);
    if (at == words.size()) break;
    if (words[at] != words[0])
      fail_packet(s, "a control header that changed while its packet moved", "memory that stays as it is until it was sent");
  }
  s.packet_words.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  spare_packet_ = std::move(words);
  return at != 0 && s.packet_words.empty();
}

// Takes along the packets from `at` on that write where the one before them ended; returns where they end.
size_t Array::join_writes(const std::vector<uint32_t>& words, size_t at, uint32_t control) {
  const auto first = static_cast<uint32_t>(field::offset.get(control));
  while (field::operation.get(control) == operation::WRITE && words.size() - at >= kHeaders && words[at] == words[0]) {
    const uint32_t next = words[at + 1];
    const size_t length = length_by(next);
    if (!odd_parity(next) || field::operation.get(next) != operation::WRITE || words.size() - at < length) break;
    if (field::offset.get(next) != static_cast<int64_t>(first + 4 * packet_data_.size())) break;
    const uint32_t* const data = words.data() + at;
    packet_data_.insert(packet_data_.end(), data + kHeaders, data + length);
    ++packets;
    at += length;
  }
  return at;
}

void Array::check_control_header(const Channel& s, uint32_t control) const {
  if (!odd_parity(control)) fail_packet(s, "the control header " + hex(control), "odd parity");
  if (field::operation.get(control) > operation::WRITE_INCREMENT)
    fail_packet(s, "operation 3 in the control header " + hex(control), "0 write, 1 read, 2 write");
}

// As the same WRITEs of a transaction, of all of `packet_data_`; their op is the one that pushed the task.
void Array::execute_packet(const Channel& s, const Tile& tile, const uint32_t* packet) {
  const uint32_t control = packet[1];
  const OpRef op = s.task.op, outer = current_op;
  std::vector<uint32_t> answer;
  current_op = op;
  try {
    const auto offset = static_cast<uint32_t>(field::offset.get(control));
    const bool reads = field::operation.get(control) == operation::READ;
    const uint32_t beats = reads ? beats_of(control) : static_cast<uint32_t>(packet_data_.size());
    const uint32_t inside = std::min(beats, (reg::OFFSET_MASK + 1 - offset) / 4);
    if (reads) {
      for (uint32_t beat = 0; beat < inside; ++beat) answer.push_back(read(address_of(tile, offset + 4 * beat)));
    } else {
      if (inside != 0) write_block(decode(tile, offset), reinterpret_cast<const uint8_t*>(packet_data_.data()), inside, op);
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
  executor_->depends("registers that a packet reads");
  AnswerPort& port = answer_ports_[tile.index];
  Channel& c = channels_[tile.answers];
  const Route* route = find_route(c, true, answer.id);  // an error of the packet that asks
  if (!route->controls.empty() || route->controller)
    fail(c, "unsupported",
         {channel_name(c),
          std::string("an answer that is routed to ") + (route->controller ? "the controller" : "a control port"),
          "answers to an S2MM channel",
          "Give the read another return id, or the id another route."});
  port.push(std::move(answer));
  if (!c.running) start_answer(c);
}

void Array::start_answer(Channel& c) {
  AnswerPort& port = answer_ports_[c.tile];
  const Answer answer = port.pop();
  const auto words = static_cast<uint32_t>(answer.words.size());
  if (!c.running) c.active_since = now;
  c.running = true;
  c.task = Task{};
  c.task.op = answer.op;
  c.bd = Bd{};
  c.bd.packet = true;
  c.bd.packet_id = answer.id;
  c.bd.shape.count = 1;
  c.bd.shape.length = words;
  if (words != 0) {  // a token says nothing but who sends it
    port.memory = Memory(words * 4);
    for (uint32_t i = 0; i < words; ++i) store32(&port.memory.bytes[size_t{4} * i], answer.words[i]);
    port.memory.valid.mark(0, words);
    c.cursor = Cursor(resolve(c.bd.shape), port.memory.bytes.data(), &port.memory.valid, 0);
  }
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
  if (!answer_ports_[c.tile].empty()) return start_answer(c);
  c.running = false;
  c.state = ChannelState::kIdle;
  c.active += now - c.active_since;
}

}  // namespace onedispatch::sim
