#include "de_core/cc/engine/base/simd_level.h"

#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

namespace de::engine {
namespace {

constexpr std::string_view kNames[] = {"scalar", "avx2", "avx512"};
constexpr char kVariable[] = "DE_SIMD";

}  // namespace

SimdLevel BestSimdLevel() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) {
    return SimdLevel::kScalar;
  }
  // No code uses VBMI2. Requiring it excludes older processors, which slow down when they use
  // 512-bit vectors.
  const bool widest =
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("bmi") != 0 &&
      __builtin_cpu_supports("bmi2") != 0 && __builtin_cpu_supports("avx512vbmi2") != 0;
  return widest ? SimdLevel::kAvx512 : SimdLevel::kAvx2;
#else
  return SimdLevel::kScalar;
#endif
}

Status ParseSimdLevel(const char* name, SimdLevel* level) {
  const SimdLevel best = BestSimdLevel();
  *level = best;
  const std::string_view text = name == nullptr ? "" : name;
  if (text.empty()) return Status::Ok();
  for (uint8_t i = 0; i < std::size(kNames); ++i) {
    if (text != kNames[i]) continue;
    if (i > static_cast<uint8_t>(best)) break;
    *level = static_cast<SimdLevel>(i);
    return Status::Ok();
  }
  return Status::InvalidArgument(
      std::string(kVariable) +
      " must be scalar, avx2 or avx512, and a level that this processor has. Received: " +
      kVariable + "=" + std::string(text) + ", while the processor's best level is " +
      std::string(kNames[static_cast<uint8_t>(best)]) + ". Unset it for the best level.");
}

Status SimdLevelStatus() {
  SimdLevel level;
  return ParseSimdLevel(std::getenv(kVariable), &level);
}

SimdLevel& ActiveSimdLevel() noexcept {
  static SimdLevel level = [] {
    SimdLevel chosen = BestSimdLevel();
    return ParseSimdLevel(std::getenv(kVariable), &chosen).ok() ? chosen : BestSimdLevel();
  }();
  return level;
}

}  // namespace de::engine
