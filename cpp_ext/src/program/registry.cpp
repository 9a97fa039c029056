// SPDX-License-Identifier: Apache-2.0
// Which program an image in program memory names. The image's layout is written by the overlay.
#include <array>
#include <string>

#include "super_kernel.h"
#include "onedispatch/phrases.h"

namespace onedispatch {

namespace {

constexpr uint32_t kImageMagic = 0x4B53444F;  // "ODSK"
constexpr uint32_t kImageWords = 5;           // magic, program, version, words that follow, hash

// 32-bit FNV-1a over the little-endian bytes of words 0..3.
uint32_t image_hash(const uint32_t* image) {
  uint32_t hash = 0x811C9DC5;
  for (uint32_t i = 0; i < 16; ++i) hash = (hash ^ (image[i / 4] >> (8 * (i % 4)) & 0xFF)) * 0x01000193;
  return hash;
}

[[noreturn]] void refuse(const std::string& text) { throw ProgramError{"core program: " + text}; }

}  // namespace

std::unique_ptr<CoreProgram> start_program(const uint32_t* image, uint32_t image_words, CoreView core,
                                           const DeviceDescription& device) {
  if (image == nullptr || image_words < kImageWords) {
    refuse("program memory holds " + counted(image_words, "word") + "; an image starts with 5");
  }
  if (image[0] != kImageMagic) {
    refuse("word 0 of program memory is " + std::to_string(image[0]) +
           ", not the image magic 1263748175 ('ODSK'): no program was loaded");
  }
  const uint32_t hash = image_hash(image);
  if (image[4] != hash) {
    refuse("word 4 of the image is " + std::to_string(image[4]) + "; the hash of words 0..3 is " + std::to_string(hash));
  }
  if (image[1] != kSuperKernelId || image[2] != kSuperKernelVersion) {
    refuse("image names program " + std::to_string(image[1]) + " version " + std::to_string(image[2]) +
           "; known: program 1 (super kernel) version 1");
  }
  return std::make_unique<SuperKernel>(core, device);
}

}  // namespace onedispatch
