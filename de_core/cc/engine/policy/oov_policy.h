// The answer of a frozen (read-only, exported) table for a key that it does not contain.
#ifndef DE_CORE_ENGINE_OOV_POLICY_H_
#define DE_CORE_ENGINE_OOV_POLICY_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// Stored in a snapshot's metadata as "oov" (the kind's name) and, if it has a value, "oov_value".
struct OovPolicy {
  /// In the order of their names in oov_policy.cc.
  enum class Kind : uint8_t {
    kInitial,   ///< the key's initial row, as in training (the default)
    kZeros,     ///< zeros; empty strings
    kConstant,  ///< `value` in every element
    kRow,       ///< the row `value`
    kError,     ///< the lookup fails and names the key
  };

  Kind kind = Kind::kInitial;
  /// kConstant: a decimal number, or the string itself for string values.
  /// kRow: the bytes of one row value: dim elements of the table's value dtype, little-endian.
  std::string value;

  /// Reads the policy from `metadata`; kInitial if there is none. Returns InvalidArgument for an
  /// unknown name.
  static Status Load(const std::map<std::string, std::string>& metadata, OovPolicy* policy);
};

/// "initial", "zeros", "constant", "row" or "error".
std::string_view NameOf(OovPolicy::Kind kind) noexcept;

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_OOV_POLICY_H_
