#include "de_core/cc/engine/policy/oov_policy.h"

#include <iterator>

namespace de::engine {
namespace {

constexpr char kName[] = "oov";
constexpr char kValue[] = "oov_value";
constexpr std::string_view kKinds[] = {"initial", "zeros", "constant", "row", "error"};

}  // namespace

std::string_view NameOf(OovPolicy::Kind kind) noexcept { return kKinds[static_cast<size_t>(kind)]; }

void OovPolicy::Store(std::map<std::string, std::string>* metadata) const {
  (*metadata)[kName] = NameOf(kind);
  if (kind == Kind::kConstant || kind == Kind::kRow) {
    (*metadata)[kValue] = value;
  } else {
    metadata->erase(kValue);
  }
}

Status OovPolicy::Load(const std::map<std::string, std::string>& metadata, OovPolicy* policy) {
  *policy = {};
  const auto name = metadata.find(kName);
  if (name == metadata.end()) return Status::Ok();
  for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
    if (kKinds[kind] != name->second) continue;
    policy->kind = static_cast<Kind>(kind);
    const auto value = metadata.find(kValue);
    if (value != metadata.end()) policy->value = value->second;
    return Status::Ok();
  }
  return Status::InvalidArgument(
      "the policy for unknown keys must be initial, zeros, constant, row or error. Received: oov=" +
      name->second);
}

}  // namespace de::engine
