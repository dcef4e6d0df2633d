#include "de_core/cc/engine/policy/oov_policy.h"

#include <iterator>

namespace de::engine {
namespace {

constexpr std::string_view kKinds[] = {"initial", "zeros", "constant", "row", "error"};

}  // namespace

std::string_view NameOf(OovPolicy::Kind kind) noexcept { return kKinds[static_cast<size_t>(kind)]; }

Status OovPolicy::Load(const std::map<std::string, std::string>& metadata, OovPolicy* policy) {
  *policy = {};
  const auto name = metadata.find("oov");
  if (name == metadata.end()) return Status::Ok();
  for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
    if (kKinds[kind] != name->second) continue;
    policy->kind = static_cast<Kind>(kind);
    const auto value = metadata.find("oov_value");
    if (value != metadata.end()) policy->value = value->second;
    return Status::Ok();
  }
  return Status::InvalidArgument(
      "the policy for unknown keys must be initial, zeros, constant, row or error. Received: oov=" +
      name->second);
}

}  // namespace de::engine
