// SPDX-License-Identifier: Apache-2.0
// The typed errors of the simulator. Each says where it happened, what was given, what is
// accepted and what to do; bind.cpp turns them into the classes of transactions/base/errors.py.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace onedispatch {

// Which operation of the transaction, -1 and 0 when none is known.
struct OpRef {
  int64_t index = -1;
  uint32_t byte_offset = 0;
};

// The four parts of a message.
struct Complaint {
  std::string where, given, accepted, remedy;

  std::string text() const {
    std::string all = where;
    if (!given.empty()) all += ": given " + given;
    if (!accepted.empty()) all += "; accepted: " + accepted;
    if (!remedy.empty()) all += ". " + remedy;
    return all;
  }
};

// A transaction that cannot be decoded.
class TransactionError : public std::runtime_error {
 public:
  explicit TransactionError(Complaint parts, OpRef where_in = {})
      : std::runtime_error(parts.text()), complaint(std::move(parts)), op(where_in) {}
  Complaint complaint;
  OpRef op;
};

// A transaction that cannot be run.
class SimulationError : public std::runtime_error {
 public:
  SimulationError(std::string kind_, Complaint parts, int column_ = -1, int row_ = -1)
      : std::runtime_error(parts.text()),
        kind(std::move(kind_)),
        complaint(std::move(parts)),
        column(column_),
        row(row_) {}

  // "address", "register", "lock", "bd", "queue", "route", "memory", "ddr", "core", "pdi",
  // "packet", "deadlock", "livelock", "endless_wait", "data_loss", "unsupported".
  std::string kind;
  Complaint complaint;
  std::string register_name;
  int column, row;  // tile, -1 when none
  int32_t status = 0;  // what a kernel answered (kernel_codes.h); 0 where none did
  std::shared_ptr<void> cause;  // what was thrown in the kernel, if its binding keeps that
  OpRef op;
};

// Wrong use of the host API: no such device, kernel, argument, or a range outside a BO.
class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(Complaint parts) : std::runtime_error(parts.text()), complaint(std::move(parts)) {}
  Complaint complaint;
};

// An xclbin that cannot be read: foreign, damaged, or of another version.
class ContainerError : public std::runtime_error {
 public:
  explicit ContainerError(Complaint parts) : std::runtime_error(parts.text()), complaint(std::move(parts)) {}
  Complaint complaint;
};

}  // namespace onedispatch
