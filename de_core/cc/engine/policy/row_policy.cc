#include "de_core/cc/engine/policy/row_policy.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {
namespace {

constexpr std::string_view kNames[kRowColumns] = {"", "time", "uses", "score", "step"};

int64_t WallMicros() noexcept {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Sets the field of this name. Returns false if there is no such field.
bool SetField(std::string_view name, uint64_t value, RowPolicyOptions* options) {
  AdmissionOptions& admission = options->admission;
  if (const RowColumn column = RowColumnOf(name); column != RowColumn::kNone) {
    options->columns[static_cast<size_t>(column)] = value != 0;
  } else if (name == "admission" && value <= 3) {
    admission.kind = static_cast<AdmissionOptions::Kind>(value);
  } else if (name == "min_count") {
    admission.min_count = value;
  } else if (name == "capacity") {
    admission.capacity = value;
  } else if (name == "error_bits") {
    admission.error = DoubleOfBits(value);
  } else if (name == "probability_bits") {
    admission.probability = DoubleOfBits(value);
  } else if (name == "seed") {
    admission.seed = value;
  } else if (name == "evict_by" && value < kRowColumns) {
    options->evict_by = static_cast<RowColumn>(value);
  } else if (name == "max_rows") {
    options->max_rows = value;
  } else if (name == "max_bytes") {
    options->max_bytes = value;
  } else if (name == "ttl_steps") {
    options->ttl_steps = static_cast<int64_t>(value);
  } else if (name == "ttl_micros") {
    options->ttl_micros = static_cast<int64_t>(value);
  } else if (name == "count_reads") {
    options->count_reads = value != 0;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string_view NameOf(RowColumn column) noexcept { return kNames[static_cast<size_t>(column)]; }

RowColumn RowColumnOf(std::string_view name) noexcept {
  for (size_t i = 1; i < kRowColumns; ++i) {
    if (kNames[i] == name) return static_cast<RowColumn>(i);
  }
  return RowColumn::kNone;
}

Status RowPolicyOptions::Check() const {
  DE_RETURN_IF_ERROR(admission.Check());
  const bool bounds = max_rows > 0 || max_bytes > 0;
  if (bounds != (evict_by != RowColumn::kNone)) {
    return Status::InvalidArgument(
        "a bound needs a column to evict by, and such a column needs a bound. Received: max_rows=" +
        std::to_string(max_rows) + ", max_bytes=" + std::to_string(max_bytes) + ", evict_by='" +
        std::string(NameOf(evict_by)) + "'");
  }
  if (ttl_steps < 0 || ttl_micros < 0) {
    return Status::InvalidArgument(
        "a time to live must not be negative. Received: ttl_steps=" + std::to_string(ttl_steps) +
        ", ttl_micros=" + std::to_string(ttl_micros));
  }
  return Status::Ok();
}

Status ParseRowPolicy(std::string_view text, RowPolicyOptions* options) {
  *options = RowPolicyOptions();
  while (!text.empty()) {
    const std::string_view field = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(text.size(), field.size() + 1));
    const size_t equals = field.find('=');
    uint64_t value = 0;
    const char* end = field.data() + field.size();
    const char* digits = equals == std::string_view::npos ? end : field.data() + equals + 1;
    const auto [stop, error] = std::from_chars(digits, end, value);
    if (error != std::errc() || stop != end || !SetField(field.substr(0, equals), value, options)) {
      return Status::InvalidArgument(
          "policy must be fields 'name=number' with ';' between them. Received: '" +
          std::string(field) + "'");
    }
  }
  return options->Check();
}

RowPolicy::RowPolicy(const RowPolicyOptions& options, RowLayout* layout) : options_(options) {
  const auto need = [&](RowColumn column, bool needed) {
    options_.columns[static_cast<size_t>(column)] |= needed;
  };
  need(options_.evict_by, bounded());
  need(RowColumn::kTime, options_.ttl_micros > 0 || options_.count_reads);
  need(RowColumn::kStep, options_.ttl_steps > 0);
  std::vector<SlotSpec> specs;
  for (size_t i = 1; i < kRowColumns; ++i) {
    if (options_.columns[i]) specs.push_back({std::string(kNames[i]), DType::kInt64, 1, 0});
  }
  if (!specs.empty()) layout->Append(kMetadataOwner, specs);
  for (const SlotSpec& spec : specs) {
    const RowSlot* slot = layout->FindSlot(kMetadataOwner, spec.name);
    offsets_[static_cast<size_t>(RowColumnOf(spec.name))] = slot->offset;
    begin_ = end_ == 0 ? slot->offset : begin_;
    end_ = slot->offset + slot->bytes();
  }
  if (!admits_all()) filters_.assign(kShards, AdmissionFilter(options_.admission, kShards));
}

Stamp RowPolicy::BeginStep() noexcept {
  Stamp stamp = BeginWrite();
  stamp.step = step_.fetch_add(1, std::memory_order_relaxed) + 1;
  return stamp;
}

Stamp RowPolicy::BeginWrite() noexcept {
  Stamp stamp{0, steps()};
  if (offset(RowColumn::kTime) == 0) return stamp;
  const int64_t now = WallMicros();
  int64_t last = last_micros_.load(std::memory_order_relaxed);
  do {
    stamp.micros = std::max(now, last + 1);
  } while (!last_micros_.compare_exchange_weak(last, stamp.micros, std::memory_order_relaxed));
  return stamp;
}

Stamp RowPolicy::Now() const noexcept {
  Stamp stamp{0, steps()};
  if (offset(RowColumn::kTime) != 0) {
    stamp.micros = std::max(WallMicros(), last_micros_.load(std::memory_order_relaxed));
  }
  return stamp;
}

void RowPolicy::TouchShared(char* row, const Stamp& stamp) const noexcept {
  const auto at = [&](RowColumn column) {
    return reinterpret_cast<int64_t*>(row + offset(column));
  };
  if (offset(RowColumn::kTime) != 0) {
    __atomic_store_n(at(RowColumn::kTime), stamp.micros, __ATOMIC_RELAXED);
  }
  if (offset(RowColumn::kStep) != 0) {
    __atomic_store_n(at(RowColumn::kStep), stamp.step, __ATOMIC_RELAXED);
  }
  if (offset(RowColumn::kUses) != 0) {
    __atomic_fetch_add(at(RowColumn::kUses), int64_t{1}, __ATOMIC_RELAXED);
  }
}

void RowPolicy::WitnessSteps(int64_t steps) noexcept {
  int64_t known = step_.load(std::memory_order_relaxed);
  while (known < steps && !step_.compare_exchange_weak(known, steps, std::memory_order_relaxed)) {
  }
}

}  // namespace de::engine
