// The names of all update rules.
#ifndef DE_CORE_TESTING_RULE_NAMES_H_
#define DE_CORE_TESTING_RULE_NAMES_H_

#include <string_view>
#include <vector>

#include "de_core/cc/engine/optimizer/rule_kernel.h"

namespace de::engine {

inline std::vector<std::string_view> RuleNames() {
  std::vector<std::string_view> names;
  for (const RuleFamily& family : {GradientRules(), AdagradRules(), AdamRules(), ProximalRules()}) {
    for (size_t i = 0; i < family.size; ++i) names.push_back(family.rules[i].name);
  }
  return names;
}

}  // namespace de::engine

#endif  // DE_CORE_TESTING_RULE_NAMES_H_
