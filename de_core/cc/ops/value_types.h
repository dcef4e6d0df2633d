// The dtypes that the ops' attributes allow.
#ifndef DE_CORE_OPS_VALUE_TYPES_H_
#define DE_CORE_OPS_VALUE_TYPES_H_

#define DE_FLOATS "float, double, half, bfloat16"
#define DE_NUMBERS DE_FLOATS ", int8, int32, int64"

/// An anchor, the token of a DeLoopAnchor, or the value of an anchor.
#define DE_ANCHOR_TYPES "{resource, variant, " DE_FLOATS "}"
/// Value types of tables whose rows can be trained.
#define DE_FLOAT_TYPES "{" DE_FLOATS "}"
/// Value types of tables whose rows support addition.
#define DE_NUMBER_TYPES "{" DE_NUMBERS "}"
/// Value types of all tables.
#define DE_VALUE_TYPES "{" DE_NUMBERS ", bool, string}"

#endif  // DE_CORE_OPS_VALUE_TYPES_H_
