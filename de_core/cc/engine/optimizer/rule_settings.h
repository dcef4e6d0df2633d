// The settings of each update rule, as callers give them: an array of doubles in the order of the
// fields. Flags are 0 or 1; beta^t is beta to the power of the step, counted from 1.
//
// Each rule takes one optional number more, at the end: the decoupled weight decay, as in Keras.
// Before the rule runs, row -= row * decay * lr, without rounding the row. So AdamW is "adam" with
// eight numbers.
#ifndef DE_CORE_ENGINE_RULE_SETTINGS_H_
#define DE_CORE_ENGINE_RULE_SETTINGS_H_

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace de::engine {

struct SgdSettings {
  double lr;
};

struct MomentumSettings {
  double lr, momentum, nesterov;
};

struct LionSettings {
  double lr, beta1, beta2;
};

struct AdagradSettings {
  double lr, eps, initial_accumulator;
};

struct AdadeltaSettings {
  double lr, rho, eps;
};

struct RmspropSettings {
  double lr, rho, momentum, eps, centered, initial_rms;
};

struct RmspropV2Settings {
  double lr, rho, eps, centered, initial_rms;
};

struct AdamSettings {
  double lr, beta1, beta2, eps, beta1_power, beta2_power, amsgrad;
};

struct AdamaxSettings {
  double lr, beta1, beta2, eps, beta1_power;
};

/// u is beta1 (1 - 0.5 * 0.96^t); u_product is the product of the u of all steps up to this one.
struct NadamSettings {
  double lr, beta1, beta2, eps, beta2_power, u, next_u, u_product;
};

/// Settings of `lamb` and `rowwise_adam`.
struct LambSettings {
  double lr, beta1, beta2, eps, beta1_power, beta2_power;
};

struct ProximalSgdSettings {
  double lr, l1, l2;
};

struct ProximalAdagradSettings {
  double lr, l1, l2, initial_accumulator;
};

struct AdagradDaSettings {
  double lr, l1, l2, initial_accumulator, step;
};

struct FtrlSettings {
  double lr, lr_power, l1, l2, l2_shrinkage, beta, initial_accumulator;
};

/// Number of settings that a rule takes, without the weight decay.
template <typename Settings>
inline constexpr size_t kSettings = sizeof(Settings) / sizeof(double);

/// The settings at the start of `numbers`, which must have passed CheckHyper.
template <typename Settings>
Settings SettingsOf(const double* numbers) noexcept {
  static_assert(std::is_trivially_copyable_v<Settings>);
  Settings settings;
  std::memcpy(&settings, numbers, sizeof(settings));
  return settings;
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RULE_SETTINGS_H_
