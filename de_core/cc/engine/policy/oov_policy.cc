#include "de_core/cc/engine/policy/oov_policy.h"

namespace de::engine {
namespace {

constexpr char kName[] = "oov";
constexpr char kValue[] = "oov_value";
constexpr OovPolicy::Kind kKinds[] = {OovPolicy::Kind::kInitial, OovPolicy::Kind::kZeros,
                                      OovPolicy::Kind::kConstant, OovPolicy::Kind::kRow,
                                      OovPolicy::Kind::kError};

}  // namespace

std::string_view NameOf(OovPolicy::Kind kind) noexcept {
  switch (kind) {
    case OovPolicy::Kind::kInitial:
      return "initial";
    case OovPolicy::Kind::kZeros:
      return "zeros";
    case OovPolicy::Kind::kConstant:
      return "constant";
    case OovPolicy::Kind::kRow:
      return "row";
    case OovPolicy::Kind::kError:
      return "error";
  }
  return "unknown";
}

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
  for (const Kind kind : kKinds) {
    if (NameOf(kind) != name->second) continue;
    policy->kind = kind;
    const auto value = metadata.find(kValue);
    if (value != metadata.end()) policy->value = value->second;
    return Status::Ok();
  }
  return Status::InvalidArgument(
      "the policy for unknown keys must be initial, zeros, constant, row or error. Received: oov=" +
      name->second);
}

}  // namespace de::engine
