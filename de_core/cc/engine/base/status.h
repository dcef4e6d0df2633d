// Errors of the engine: a code and a sentence. The engine never throws, prints or aborts across
// its boundary; the kernels turn a Status into an absl::Status.
#ifndef DE_CORE_ENGINE_STATUS_H_
#define DE_CORE_ENGINE_STATUS_H_

#include <cstdint>
#include <string>
#include <utility>

namespace de::engine {

enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument,     ///< the caller's arguments do not fit the table
  kNotFound,            ///< a file, slot or key that must exist does not
  kResourceExhausted,   ///< no memory or no disk space
  kDataLoss,            ///< a file is truncated or corrupt
  kFailedPrecondition,  ///< the table is in the wrong state for this verb
  kInternal,            ///< the operating system failed in another way
};

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string message;

  bool ok() const noexcept { return code == Code::kOk; }
  static Status Ok() { return {}; }
  static Status InvalidArgument(std::string text) {
    return {Code::kInvalidArgument, std::move(text)};
  }
  static Status NotFound(std::string text) { return {Code::kNotFound, std::move(text)}; }
  static Status ResourceExhausted(std::string text) {
    return {Code::kResourceExhausted, std::move(text)};
  }
  static Status DataLoss(std::string text) { return {Code::kDataLoss, std::move(text)}; }
  static Status FailedPrecondition(std::string text) {
    return {Code::kFailedPrecondition, std::move(text)};
  }
  static Status Internal(std::string text) { return {Code::kInternal, std::move(text)}; }
};

}  // namespace de::engine

/// Returns early with the error of `expression`, which must yield a Status.
#define DE_RETURN_IF_ERROR(expression)             \
  do {                                             \
    ::de::engine::Status de_status = (expression); \
    if (!de_status.ok()) return de_status;         \
  } while (false)

#endif  // DE_CORE_ENGINE_STATUS_H_
