// SPDX-License-Identifier: Apache-2.0
// The host API: containers, buffers, and the way of a run.
#include "test_xrt_support.h"

namespace onedispatch::xrt {
namespace {

using sim::testing::Builder;
using testing::container;
using testing::Host;
using testing::make_xclbin;
using testing::store32;

TEST(Xrt, CountInWordsOrBytesAndTheWrapperOfDynamicDispatch) {
  Host host;
  const std::vector<uint8_t> transaction = Builder().timer(4).bytes();
  const bo plain = host.buffer(transaction);
  EXPECT_EQ(host.call(plain, transaction.size()).wait(), ert_cmd_state::COMPLETED);
  run words = host.call(plain, transaction.size() / 4);
  EXPECT_EQ(words.wait(), ert_cmd_state::COMPLETED);
  ASSERT_EQ(words.report().timers.size(), 1u);
  std::vector<uint8_t> wrapped(8);
  store32(&wrapped[4], static_cast<uint32_t>(transaction.size() + 8));
  wrapped.insert(wrapped.end(), transaction.begin(), transaction.end());
  EXPECT_EQ(host.call(host.buffer(wrapped), wrapped.size() / 4).wait(), ert_cmd_state::COMPLETED);
  EXPECT_THROW(host.call(plain, 5).wait(), TransactionError);
}

TEST(Xrt, ARunKeepsItsErrorForWait) {
  Host host;
  const bo bad = host.buffer(Builder().write(sim::testing::tile_address(0, 1, 0x96000), 1).bytes());
  run failed = host.call(bad, bad.size());
  EXPECT_EQ(failed.state(), ert_cmd_state::ERROR);
  EXPECT_THROW(failed.wait(), SimulationError);
  const bo good = host.buffer(Builder().bytes());
  EXPECT_EQ(host.call(good, good.size()).wait(), ert_cmd_state::COMPLETED);
}

TEST(Xrt, WrongUse) {
  Host host;
  EXPECT_THROW(device(1, "npu2"), DeviceError);
  EXPECT_THROW(device("npu9"), DeviceError);
  EXPECT_THROW(kernel(host.context, "DPU"), DeviceError);
  EXPECT_THROW(hw_context(host.npu, uuid{}), DeviceError);
  EXPECT_THROW(host.npu.set_constant("dma.typo", 1), DeviceError);
  EXPECT_THROW(bo(host.npu, 0), DeviceError);
  EXPECT_THROW(host.super.group_id(99), DeviceError);
  EXPECT_THROW(run(host.super).set_arg(99, uint64_t{0}), DeviceError);
  run empty(host.super);
  empty.start();
  EXPECT_THROW(empty.wait(), DeviceError);
  device small("npu2_1col");
  EXPECT_THROW(small.register_xclbin(host.binary), DeviceError);
  device other("phoenix");
  EXPECT_THROW(other.register_xclbin(host.binary), DeviceError);
}

TEST(Xrt, BufferRanges) {
  device npu("strix");
  bo whole(npu, 100);
  const uint8_t data[4] = {1, 2, 3, 4};
  whole.write(data, 4, 96);
  EXPECT_THROW(whole.write(data, 4, 97), DeviceError);
  EXPECT_THROW(whole.sync(sync_direction::TO_DEVICE, 101, 0), DeviceError);
  EXPECT_THROW(whole.sync(sync_direction::TO_DEVICE, 1, ~size_t{0}), DeviceError);
  const bo part(whole, 8, 92);
  EXPECT_EQ(part.map()[4], 1);
  EXPECT_EQ(part.address(), whole.address() + 92);
  EXPECT_THROW(bo(whole, 9, 92), DeviceError);
  EXPECT_THROW(bo(whole, 4, 2), DeviceError);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(whole.map()) % 4096, 0u);
}

TEST(Xrt, EveryDamagedByteOfAContainerIsRefused) {
  const std::vector<uint8_t> good = container();
  for (size_t at = 0; at < good.size(); ++at) {
    if (at >= 16 && at < 64) continue;  // name and uuid are not under the CRC
    if (at >= 76 && at < 80) continue;  // reserved
    std::vector<uint8_t> bad = good;
    bad[at] ^= 0x41;
    EXPECT_THROW(xclbin::from_bytes(bad.data(), bad.size()), ContainerError) << at;
  }
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(xclbin::from_bytes(good.data(), size), ContainerError);
}

TEST(Xrt, ADamagedNameOfAContainerIsRefusedByTheDevice) {
  device npu("npu2");
  EXPECT_THROW(npu.register_xclbin(make_xclbin("npu7")), DeviceError);
}

TEST(Xrt, RunlistStopsAtTheFirstFailure) {
  Host host;
  const bo good = host.buffer(Builder().bytes());
  runlist list(host.context);
  EXPECT_EQ(list.wait(), ert_cmd_state::NEW);
  run first(host.super), second(host.super);
  for (run* one : {&first, &second}) {
    one->set_arg(0, uint64_t{3});
    one->set_arg(1, good);
    one->set_arg(2, uint64_t{good.size()});
    list.add(*one);
  }
  second.set_arg(0, uint64_t{4});
  list.execute();
  EXPECT_EQ(first.state(), ert_cmd_state::COMPLETED);
  EXPECT_THROW(list.wait(), DeviceError);
}

TEST(Devices, NamesPartitionsAndAliases) {
  const std::vector<std::string> names = device_names();
  EXPECT_EQ(names.size(), 12u);
  EXPECT_EQ(find_device("npu1_3col").columns, 3u);
  EXPECT_EQ(find_device("phoenix").name, "npu1");
  EXPECT_EQ(find_device("strix").columns, 8u);
  EXPECT_THROW(find_device("npu2_8col"), std::invalid_argument);
  EXPECT_THROW(find_device("npu1").at("no.such"), std::out_of_range);
  EXPECT_GT(find_device("npu1").at("clock.array_mhz"), 0);
}

}  // namespace
}  // namespace onedispatch::xrt
