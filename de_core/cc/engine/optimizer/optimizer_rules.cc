#include "de_core/cc/engine/optimizer/optimizer_rules.h"

#include <cmath>

#include "de_core/cc/engine/optimizer/rule_kernel.h"

namespace de::engine {

const OptimizerRule* FindRule(std::string_view name) noexcept {
  for (const RuleFamily& family : {GradientRules(), AdagradRules(), AdamRules(), ProximalRules()}) {
    for (size_t i = 0; i < family.size; ++i) {
      if (family.rules[i].name == name) return &family.rules[i];
    }
  }
  return nullptr;
}

Status CheckHyper(const OptimizerRule& rule, const double* hyper, size_t n_hyper) {
  if (n_hyper < rule.min_hyper || n_hyper > rule.max_hyper) {
    return Status::InvalidArgument("the rule '" + std::string(rule.name) + "' takes " +
                                   std::to_string(rule.min_hyper) + " hyperparameters, or " +
                                   std::to_string(rule.max_hyper) +
                                   " with a weight decay. Received: " + std::to_string(n_hyper));
  }
  for (size_t i = 0; i < n_hyper; ++i) {
    if (!std::isfinite(hyper[i])) {
      return Status::InvalidArgument("the hyperparameters of the rule '" + std::string(rule.name) +
                                     "' must be finite. Received: hyper[" + std::to_string(i) +
                                     "]=" + std::to_string(hyper[i]));
    }
  }
  return Status::Ok();
}

}  // namespace de::engine
