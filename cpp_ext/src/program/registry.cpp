// SPDX-License-Identifier: Apache-2.0
// Which program an image in program memory names, and which kernels it carries: magic, program id, ABI
// version, words in all, number of kernels; of each its digest and element types; as many words as their
// code takes; and a hash of all words before it. Overlays write it, and transactions that reload programs.
#include <algorithm>
#include <bitset>
#include <string>
#include <vector>

#include "image.h"
#include "super_kernel.h"
#include "onedispatch/text.h"
#include "onedispatch/register_map.h"

namespace onedispatch {

namespace {

namespace image = params::image;

// 32-bit FNV-1a over the little-endian bytes of the first `count` words. All cores of an overlay have the same ones:
// those of the core before are hashed once.
uint32_t image_hash(const uint32_t* words, uint32_t count) {
  thread_local std::vector<uint32_t> before;
  thread_local uint32_t hash = params::kHashBasis;
  if (before.size() == count && std::equal(before.begin(), before.end(), words)) return hash;
  before.assign(words, words + count);
  hash = params::kHashBasis;
  for (uint32_t i = 0; i < 4 * count; ++i) hash = (hash ^ (words[i / 4] >> (8 * (i % 4)) & 0xFF)) * params::kHashPrime;
  return hash;
}

[[noreturn]] void refuse(const std::string& text) { throw ProgramError{"core program: " + text}; }

// The word behind `words` of the image, with what it must be.
void check_head(const uint32_t* words, uint32_t count) {
  if (words == nullptr || count <= image::kernels) {
    refuse("program memory holds " + counted(count, "word") + "; an image begins with " + std::to_string(image::kernels));
  }
  if (words[image::magic] != params::kImageMagic) {
    refuse("word 0 of program memory is " + std::to_string(words[image::magic]) + ", not the image magic " + std::to_string(params::kImageMagic) +
           " ('ODSK'): no program was loaded");
  }
  const uint32_t total = words[image::words], carried = words[image::count];
  if (total <= image::kernels || total > count) {
    refuse("word " + std::to_string(image::words) + " of the image says that it has " + counted(total, "word") +
           "; program memory has " + std::to_string(count));
  }
  const uint32_t hash = image_hash(words, total - 1);
  if (words[total - 1] != hash) {
    refuse("word " + std::to_string(total - 1) + " of the image is " + std::to_string(words[total - 1]) +
           "; the hash of the words before it is " + std::to_string(hash));
  }
  if (carried > params::kMaxCarried || image::kernels + carried * params::kCarriedWords >= total) {
    refuse("word " + std::to_string(image::count) + " of the image says " + counted(carried, "kernel") + "; accepted: at most " +
           std::to_string(params::kMaxCarried) + ", inside the image");
  }
  if (words[image::program] != params::kSuperKernelId || words[image::version] != params::kSuperKernelVersion) {
    refuse("image names program " + std::to_string(words[image::program]) + " version " + std::to_string(words[image::version]) +
           "; known: program " + std::to_string(params::kSuperKernelId) + " (super kernel) version " + std::to_string(params::kSuperKernelVersion));
  }
}

// Code that stands once, for element types that there is code for.
void check_carried(const Carried& one, const std::vector<Carried>& before) {
  const uint32_t known = one.known_types();
  if (one.types == 0 || (one.types & ~known) != 0) {
    refuse(std::string("the image carries ") + one.name() + " for element types of the mask " + std::to_string(one.types) +
           "; accepted: one or more of the mask " + std::to_string(known));
  }
  if (find(before, one.digest()) != nullptr) refuse(std::string("the image carries ") + one.name() + " twice; accepted: once, for all its element types");
}

// The kernels of an image that is sound.
std::vector<Carried> carried_by(const uint32_t* words, uint32_t count) {
  check_head(words, count);
  std::vector<Carried> carried;
  uint64_t code = params::kSuperKernelBytes;
  const uint32_t* entry = words + image::kernels;
  for (uint32_t i = 0; i < words[image::count]; ++i, entry += params::kCarriedWords) {
    Carried one = known_by(entry[0]);
    if (one.kernel == nullptr) {
      const std::string searched = registry().searched();
      throw ProgramError{"core program: the image carries a kernel with digest " + digest_text(entry[0]) + ", which no library has; known: " +
                             names_of(registry().all()) + (searched.empty() ? "" : "; " + searched),
                         OD_NOT_FOUND};
    }
    one.types = entry[1];
    check_carried(one, carried);
    code += uint64_t{one.code_bytes()} * std::bitset<32>(one.types).count();
    carried.push_back(std::move(one));
  }
  // Head and table, the code, the hash: code that is not there cannot run.
  const uint64_t whole = static_cast<uint64_t>(entry - words) + code / 4 + 1;
  if (words[image::words] != whole) {
    refuse("word " + std::to_string(image::words) + " of the image says that it has " + counted(words[image::words], "word") +
           "; with the code of its kernels it has " + std::to_string(whole));
  }
  return carried;
}

// Whether `carried` has what the block names, for the element type of its first output; the block's words.
size_t check_block(const std::vector<Carried>& carried, const uint32_t* block, size_t left) {
  const uint32_t digest = block[params::header::kernel];
  const Carried* const found = find(carried, digest);
  if (found == nullptr || found->function != nullptr) {
    refuse("a parameter block names " + known_name(digest) + " (digest " + digest_text(digest) + "); the image carries: " + names_of(carried));
  }
  const od_kernel_spec& spec = *found->kernel->spec;
  const uint32_t at = spec.operands[first_output(spec)].at;
  if (at < left) {
    const uint32_t dtype = block[at] >> params::kDtypeShift & 0xFF;
    if (dtype >= 32 || (found->types >> dtype & 1) == 0) {
      refuse(std::string("a parameter block names ") + spec.name + " for element type " + std::to_string(dtype) +
             "; the image carries it for those of the mask " + std::to_string(found->types));
    }
  }
  for (uint32_t i = 0; i < spec.n_scalars; ++i) {
    const od_scalar_spec& scalar = spec.scalars[i];
    const uint32_t seen = spec.operands[scalar.of].at;
    if (scalar.at >= left || seen >= left) continue;
    const od_function_spec* const function = later_function(scalar, block[scalar.at]);
    const uint32_t dtype = block[seen] >> params::kDtypeShift & 0xFF;
    if (!carries(carried, function, dtype)) {
      refuse(std::string("a parameter block names ") + spec.name + " with " + function->name + " of element type " + std::to_string(dtype) +
             "; the image carries: " + names_of(carried));
    }
  }
  return spec.block_words;
}

// Where the next block begins, at ``at`` or behind what lies there: padding, control packets, the header of
// the packet that the block is.
size_t next_block(const std::vector<uint32_t>& words, size_t at) {
  while (at < words.size() && words[at] != params::kMagic) {
    const bool ends = words[at] == 0 || at + 1 == words.size() || words[at + 1] == params::kMagic;
    at += ends ? 1 : 2 + static_cast<size_t>(reg::control_packet::beats.get(words[at + 1]));
  }
  return at;
}

}  // namespace

uint32_t Carried::known_types() const {
  return function != nullptr ? function->dtypes : kernel->spec->operands[first_output(*kernel->spec)].dtypes;
}

Carried known_by(uint32_t digest) {
  if (KernelPtr kernel = registry().find(digest)) return {std::move(kernel)};
  for (const KernelPtr& kernel : registry().all()) {
    for (uint32_t i = 0; digest != 0 && i < kernel->spec->n_scalars; ++i) {
      const od_scalar_spec& scalar = kernel->spec->scalars[i];
      for (uint32_t code = 0; scalar.type == OD_SCALAR_FUNCTION && code <= scalar.high; ++code) {
        if (scalar.functions[code].digest == digest) return {kernel, 0, &scalar.functions[code]};
      }
    }
  }
  return {};
}

const Carried* find(const std::vector<Carried>& carried, uint32_t digest) {
  const auto found = std::find_if(carried.begin(), carried.end(), [&](const Carried& one) { return one.digest() == digest; });
  return found == carried.end() ? nullptr : &*found;
}

const od_function_spec* later_function(const od_scalar_spec& scalar, uint32_t word) {
  const uint32_t code = word & ((1u << OD_MARK_SHIFT) - 1);
  if (scalar.type != OD_SCALAR_FUNCTION || code > scalar.high || scalar.functions[code].digest == 0) return nullptr;
  return &scalar.functions[code];
}

bool carries(const std::vector<Carried>& carried, const od_function_spec* function, uint32_t dtype) {
  if (function == nullptr) return true;
  const Carried* const found = find(carried, function->digest);
  return found != nullptr && dtype < 32 && (found->types >> dtype & 1) != 0;
}

std::string names_of(const std::vector<Carried>& carried) {
  std::string names;
  for (const Carried& one : carried) names += (names.empty() ? "" : ", ") + std::string(one.name()) + " (digest " + digest_text(one.digest()) + ")";
  return names.empty() ? "none" : names;
}

std::string known_name(uint32_t digest) {
  const KernelPtr known = registry().find(digest);
  return known == nullptr ? "a kernel that no library has" : known->spec->name;
}

uint32_t first_output(const od_kernel_spec& spec) {
  uint32_t i = 0;
  while (spec.operands[i].role != OD_ROLE_OUTPUT) ++i;
  return i;
}

void check_image(const std::vector<uint32_t>& image, const std::vector<uint32_t>& blocks, size_t most) {
  const std::vector<Carried> carried = carried_by(image.data(), static_cast<uint32_t>(image.size()));
  if (most > 0 && !blocks.empty() && next_block(blocks, 0) == blocks.size()) refuse("no block is in the parameters");
  for (size_t at = next_block(blocks, 0); most > 0 && at + params::kWords <= blocks.size(); --most)
    at = next_block(blocks, at + check_block(carried, blocks.data() + at, blocks.size() - at));
}

std::unique_ptr<CoreProgram> start_program(const uint32_t* words, uint32_t count, CoreView core,
                                           const DeviceDescription& device) {
  return std::make_unique<SuperKernel>(core, device, carried_by(words, count));
}

}  // namespace onedispatch
