// SPDX-License-Identifier: Apache-2.0
// Which program an image in program memory names, and which kernels it carries: magic, program id, ABI
// version, number of kernels, their digests, and a hash of all words before it. The overlay writes it.
#include <string>

#include "super_kernel.h"
#include "onedispatch/phrases.h"

namespace onedispatch {

namespace {

namespace image = params::image;

// 32-bit FNV-1a over the little-endian bytes of the first `count` words.
uint32_t image_hash(const uint32_t* words, uint32_t count) {
  uint32_t hash = params::kHashBasis;
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
  const uint32_t carried = words[image::count];
  if (carried > params::kMaxCarried || image::kernels + carried >= count) {
    refuse("word " + std::to_string(image::count) + " of the image says " + counted(carried, "kernel") + "; accepted: at most " +
           std::to_string(params::kMaxCarried) + ", inside program memory");
  }
  const uint32_t hashed = image::kernels + carried, hash = image_hash(words, hashed);
  if (words[hashed] != hash) {
    refuse("word " + std::to_string(hashed) + " of the image is " + std::to_string(words[hashed]) + "; the hash of the words before it is " +
           std::to_string(hash));
  }
  if (words[image::program] != params::kSuperKernelId || words[image::version] != params::kSuperKernelVersion) {
    refuse("image names program " + std::to_string(words[image::program]) + " version " + std::to_string(words[image::version]) +
           "; known: program " + std::to_string(params::kSuperKernelId) + " (super kernel) version " + std::to_string(params::kSuperKernelVersion));
  }
}

}  // namespace

std::unique_ptr<CoreProgram> start_program(const uint32_t* words, uint32_t count, CoreView core,
                                           const DeviceDescription& device) {
  check_head(words, count);
  std::vector<const od_kernel*> carried;
  for (uint32_t i = 0; i < words[image::count]; ++i) {
    const uint32_t digest = words[image::kernels + i];
    const od_kernel* kernel = registry().find(digest);
    if (kernel == nullptr) {
      refuse("the image carries a kernel with digest " + digest_text(digest) + ", which no library has; known: " + names_of(registry().all()));
    }
    carried.push_back(kernel);
  }
  return std::make_unique<SuperKernel>(core, device, std::move(carried));
}

}  // namespace onedispatch
