#include "de_core/cc/kernels/batch/feature_batch.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShapeUtils;

// A part of this many ids takes about 100 microseconds.
constexpr size_t kIdsPerPart = 4096;
// With fewer ids in a batch, waking a thread takes longer than it saves.
constexpr size_t kIdsWorthSplitting = 16384;

absl::Status Wrong(const char* attribute) {
  return absl::InvalidArgumentError(
      absl::StrCat("the attributes of an op over features must have one valid element per feature "
                   "or table. Received: a wrong value of ",
                   attribute));
}

template <typename T>
absl::Status Read(OpKernelConstruction* context, const char* name, size_t size,
                  std::vector<T>* values) {
  TF_RETURN_IF_ERROR(context->GetAttr(name, values));
  return values->size() == size ? absl::OkStatus() : Wrong(name);
}

absl::Status WrongShape(const char* what, const Tensor& received) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ". Received: shape=", received.shape().DebugString()));
}

}  // namespace

absl::Status FeatureSpecs::Init(OpKernelConstruction* context) {
  using Kind = FeatureSpec::Kind;
  using Combiner = FeatureSpec::Combiner;
  std::vector<std::string> kinds, combiners, padding;
  std::vector<int64_t> tables, lengths, widths;
  std::vector<bool> weighted, padded;
  std::vector<tensorflow::DataType> key_types, value_types;
  TF_RETURN_IF_ERROR(context->GetAttr("kinds", &kinds));
  const size_t count = kinds.size();
  TF_RETURN_IF_ERROR(Read(context, "Tids", count, &key_types));
  TF_RETURN_IF_ERROR(Read(context, "table_of", count, &tables));
  TF_RETURN_IF_ERROR(Read(context, "combiners", count, &combiners));
  TF_RETURN_IF_ERROR(Read(context, "lengths", count, &lengths));
  TF_RETURN_IF_ERROR(Read(context, "weighted", count, &weighted));
  TF_RETURN_IF_ERROR(Read(context, "padded", count, &padded));
  TF_RETURN_IF_ERROR(Read(context, "padding", count, &padding));
  TF_RETURN_IF_ERROR(context->GetAttr("dims", &widths));
  TF_RETURN_IF_ERROR(Read(context, "Tvalues", widths.size(), &value_types));
  TF_RETURN_IF_ERROR(context->GetAttr("joined", &joined));
  for (size_t t = 0; t < widths.size(); ++t) {
    if (widths[t] < 1 || widths[t] > static_cast<int64_t>(engine::kMaxDim)) return Wrong("dims");
    dims.push_back(static_cast<size_t>(widths[t]));
    dtypes.emplace_back();
    TF_RETURN_IF_ERROR(ToEngine(value_types[t], &dtypes.back()));
  }
  of_table.resize(dims.size());
  int structure = 0, weights = 0;
  for (size_t f = 0; f < count; ++f) {
    FeatureSpec spec;
    spec.table = static_cast<size_t>(tables[f]);
    if (spec.table >= dims.size()) return Wrong("table_of");
    spec.real = engine::RealOf(dtypes[spec.table]);
    if (kinds[f] != "dense" && kinds[f] != "ragged" && kinds[f] != "sparse") return Wrong("kinds");
    spec.kind = kinds[f] == "dense"    ? Kind::kDense
                : kinds[f] == "ragged" ? Kind::kRagged
                                       : Kind::kSparse;
    const std::string& combiner = combiners[f];
    if (combiner != "" && combiner != "sum" && combiner != "mean" && combiner != "sqrtn") {
      return Wrong("combiners");
    }
    spec.combiner = combiner == ""       ? Combiner::kNone
                    : combiner == "sum"  ? Combiner::kSum
                    : combiner == "mean" ? Combiner::kMean
                                         : Combiner::kSqrtn;
    spec.length = lengths[f];
    if (spec.length == 0 || spec.length < -1) return Wrong("lengths");
    spec.weighted = weighted[f];
    spec.padded = padded[f];
    if (spec.padded && key_types[f] == tensorflow::DT_STRING) {
      spec.padding_string = padding[f];
    } else if (spec.padded && !absl::SimpleAtoi(padding[f], &spec.padding)) {
      return Wrong("padding");
    }
    spec.structure = structure;
    structure += static_cast<int>(spec.kind);  // a dense feature has none, a sparse one two
    spec.weights = weights;
    weights += spec.weighted ? 1 : 0;
    const bool is_sequence = spec.combiner == Combiner::kNone;
    if (is_sequence && (joined || spec.weighted)) return Wrong("combiners");
    if (is_sequence && spec.kind == Kind::kSparse && spec.length < 0) return Wrong("lengths");
    of_table[spec.table].push_back(f);
    joined_dim += dims[spec.table];
    features.push_back(std::move(spec));
  }
  int structures = 0;
  std::vector<tensorflow::DataType> weight_types;
  TF_RETURN_IF_ERROR(context->GetAttr("structures", &structures));
  TF_RETURN_IF_ERROR(Read(context, "Tweights", static_cast<size_t>(weights), &weight_types));
  if (structures != structure) return Wrong("structures");
  if (joined && features.empty()) return Wrong("joined");
  for (const FeatureSpec& spec : features) {
    if (joined && spec.real != features[0].real) return Wrong("joined");
    if (spec.weighted &&
        weight_types[static_cast<size_t>(spec.weights)] != ToTensorFlow(spec.real)) {
      return Wrong("Tweights");
    }
  }
  return absl::OkStatus();
}

absl::Status FeatureIds::Build(const FeatureSpec& spec, const Tensor& ids, const Tensor* structure,
                               const Tensor* weights) {
  using Kind = FeatureSpec::Kind;
  TF_RETURN_IF_ERROR(CheckKeyCount(ids));
  if (weights != nullptr && weights->shape() != ids.shape()) {
    return WrongShape("weights must have the shape of their ids", *weights);
  }
  batch_ = std::make_unique<KeyBatch>(ids);
  keys_ = batch_->keys();
  weights_ = weights == nullptr ? nullptr : weights->tensor_data().data();
  const bool is_sequence = spec.combiner == FeatureSpec::Combiner::kNone;
  const bool is_dense = spec.kind == Kind::kDense;
  if (is_dense) {
    if (ids.dims() < 1) return WrongShape("dense ids must have one dimension or more", ids);
    outer_ = ids.shape();
    width_ = 1;
    if (ids.dims() > 1) {
      width_ = static_cast<size_t>(ids.dim_size(ids.dims() - 1));
      outer_.RemoveLastDims(1);
    }
    examples_ = static_cast<size_t>(outer_.num_elements());
  } else {
    TF_RETURN_IF_ERROR(ReadStructure(spec, ids, structure));
    outer_ = tensorflow::TensorShape({static_cast<int64_t>(examples_)});
  }
  const bool one_each = is_dense && ids.dims() == 1;
  size_t places = one_each ? 1 : 0;  // of a sequence
  if (is_sequence && !one_each) {
    places = spec.length >= 0 ? static_cast<size_t>(spec.length) : width_;
    if (!is_dense && spec.length < 0) {  // a row per id
      outer_ = ids.shape();
      width_ = places = 1;
      examples_ = keys_.size;
      lists_ = nullptr;
    } else {
      TF_RETURN_IF_ERROR(outer_.AddDimWithStatus(static_cast<int64_t>(places)));
    }
  }
  count_ = static_cast<size_t>(outer_.num_elements());
  single_ = lists_ == nullptr && !spec.padded && weights == nullptr &&
            (is_sequence ? places == width_ : width_ == 1);
  if (single_) return absl::OkStatus();
  Divide(spec, places);
  if (drops_) DropUnkept(weights, engine::SizeOf(spec.real));
  return absl::OkStatus();
}

// Sets lists_, the row splits of a ragged or sparse feature's examples.
absl::Status FeatureIds::ReadStructure(const FeatureSpec& spec, const Tensor& ids,
                                       const Tensor* structure) {
  if (!TensorShapeUtils::IsVector(ids.shape())) {
    return WrongShape("the values of ragged and sparse ids must be a vector", ids);
  }
  if (spec.kind == FeatureSpec::Kind::kRagged) {
    if (!TensorShapeUtils::IsVector(structure->shape()) || structure->NumElements() == 0) {
      return WrongShape("row_splits must be a vector and not be empty", *structure);
    }
    lists_ = structure->flat<int64_t>().data();
    examples_ = static_cast<size_t>(structure->NumElements()) - 1;
    return ToAbsl(engine::Segments{lists_, examples_}.Check(keys_.size));
  }
  const Tensor &indices = structure[0], &shape = structure[1];
  if (indices.dims() != 2 || indices.dim_size(0) != ids.NumElements() || indices.dim_size(1) != 2 ||
      shape.dims() != 1 || shape.NumElements() != 2) {
    return WrongShape("sparse ids must have one row of two indices per id, and a shape of two",
                      indices);
  }
  const int64_t rows = shape.flat<int64_t>()(0);
  const auto index = indices.matrix<int64_t>();
  // A tensor of row splits has 8 bytes for each row, and a tensor has less than 2^63 bytes.
  if (rows < 0 || rows >= int64_t{1} << 40) {
    return absl::InvalidArgumentError(
        absl::StrCat("sparse ids must have from 0 to 2^40 - 1 rows. Received: ", rows));
  }
  own_lists_.assign(static_cast<size_t>(rows) + 1, ids.NumElements());
  int64_t row = 0;
  own_lists_[0] = 0;
  for (int64_t i = 0; i < ids.NumElements(); ++i) {
    if (index(i, 0) < row || index(i, 0) >= rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("sparse ids must be in row-major order (tf.sparse.reorder sorts them), with "
                       "rows in [0, ",
                       rows, "). Received: row ", index(i, 0), " after row ", row));
    }
    while (row < index(i, 0)) own_lists_[static_cast<size_t>(++row)] = i;
  }
  lists_ = own_lists_.data();
  examples_ = static_cast<size_t>(rows);
  return absl::OkStatus();
}

// Sets splits_. Lists in kept_ the ids to look up, if there are others. A sequence has `places`
// segments per example, and other features one.
void FeatureIds::Divide(const FeatureSpec& spec, size_t places) {
  const bool is_sequence = spec.combiner == FeatureSpec::Combiner::kNone;
  const auto list_of = [&](size_t example) -> std::pair<size_t, size_t> {
    if (lists_ == nullptr) return {example * width_, (example + 1) * width_};
    return {static_cast<size_t>(lists_[example]), static_cast<size_t>(lists_[example + 1])};
  };
  const auto most = is_sequence       ? places
                    : spec.length < 0 ? keys_.size
                                      : static_cast<size_t>(spec.length);
  drops_ = spec.padded;
  for (size_t e = 0; e < examples_ && !drops_; ++e) {
    const auto [begin, end] = list_of(e);
    drops_ = end - begin > most;
  }
  if (!is_sequence && !drops_ && lists_ != nullptr) {
    splits_ = lists_;
    return;
  }
  const auto is_padding = [&](size_t i) {
    return keys_.ints != nullptr ? keys_.ints[i] == spec.padding
                                 : keys_.strings[i] == spec.padding_string;
  };
  own_splits_.reserve(count_ + 1);
  if (drops_) kept_.reserve(keys_.size);
  int64_t at = 0;
  const auto keep = [&](size_t i) {
    if (drops_ && spec.padded && is_padding(i)) return;
    if (drops_) kept_.push_back(i);
    ++at;
  };
  for (size_t e = 0; e < examples_; ++e) {
    const auto [begin, end] = list_of(e);
    const size_t stop = std::min(end, begin + most);
    if (!is_sequence) own_splits_.push_back(at);
    for (size_t i = begin; i < stop; ++i) {
      if (is_sequence) own_splits_.push_back(at);
      keep(i);
    }
    for (size_t place = stop - begin; is_sequence && place < places; ++place) {
      own_splits_.push_back(at);
    }
  }
  own_splits_.push_back(at);
  splits_ = own_splits_.data();
}

// Copies the ids and weights that kept_ lists.
void FeatureIds::DropUnkept(const Tensor* weights, size_t real_bytes) {
  if (weights_ != nullptr) {
    own_weights_.resize(kept_.size() * real_bytes);
    const char* const from = weights->tensor_data().data();
    for (size_t j = 0; j < kept_.size(); ++j) {
      std::memcpy(own_weights_.data() + j * real_bytes, from + kept_[j] * real_bytes, real_bytes);
    }
    weights_ = own_weights_.data();
  }
  if (keys_.ints != nullptr) {
    own_ints_.reserve(kept_.size());
    for (const size_t i : kept_) own_ints_.push_back(keys_.ints[i]);
    keys_ = {own_ints_.data(), nullptr, kept_.size()};
  } else {
    own_strings_.reserve(kept_.size());
    for (const size_t i : kept_) own_strings_.push_back(keys_.strings[i]);
    keys_ = {nullptr, own_strings_.data(), kept_.size()};
  }
}

void WriteDistinctKeys(const engine::PooledGradient& pooled, const engine::Keys& keys,
                       Tensor* out) {
  const auto write = [&](const auto* from, auto to) {
    for (int64_t j = 0; j < to.size(); ++j) to(j) = from[pooled.first(static_cast<size_t>(j))];
  };
  if (out->dtype() == tensorflow::DT_STRING) write(keys.strings, out->flat<tensorflow::tstring>());
  if (out->dtype() == tensorflow::DT_INT32) write(keys.ints, out->flat<int32_t>());
  if (out->dtype() == tensorflow::DT_INT64) write(keys.ints, out->flat<int64_t>());
}

void JoinedKeys::Join(const std::vector<FeatureIds>& ids, const std::vector<size_t>& features) {
  keys_ = ids[features[0]].keys();
  if (features.size() == 1) return;
  ints_.clear();
  strings_.clear();
  const size_t count = CountKeys(ids, features);
  for (const size_t f : features) {
    const engine::Keys& keys = ids[f].keys();
    if (keys.strings == nullptr) {
      if (ints_.empty()) ints_.reserve(count);
      ints_.insert(ints_.end(), keys.ints, keys.ints + keys.size);
    } else {
      if (strings_.empty()) strings_.reserve(count);
      strings_.insert(strings_.end(), keys.strings, keys.strings + keys.size);
    }
  }
  keys_ = strings_.empty() ? engine::Keys{ints_.data(), nullptr, count}
                           : engine::Keys{nullptr, strings_.data(), count};
}

absl::Status ReadFeatures(OpKernelContext* context, const FeatureSpecs& specs,
                          engine::Executor* executor, std::vector<FeatureIds>* ids) {
  tensorflow::OpInputList given, structure, weights;
  TF_RETURN_IF_ERROR(context->input_list("ids", &given));
  TF_RETURN_IF_ERROR(context->input_list("structure", &structure));
  TF_RETURN_IF_ERROR(context->input_list("weights", &weights));
  const size_t count = specs.features.size();
  *ids = std::vector<FeatureIds>(count);
  size_t total = 0;
  for (const Tensor& each : given) total += static_cast<size_t>(each.NumElements());
  std::vector<std::function<absl::Status()>> tasks;
  const auto build = [&](size_t f) {
    const FeatureSpec& spec = specs.features[f];
    Tensor parts[2];
    for (int i = 0; i < static_cast<int>(spec.kind); ++i) parts[i] = structure[spec.structure + i];
    return (*ids)[f].Build(spec, given[static_cast<int>(f)], parts,
                           spec.weighted ? &weights[spec.weights] : nullptr);
  };
  for (size_t f = 0; f < count; ++f) tasks.push_back([&build, f] { return build(f); });
  TF_RETURN_IF_ERROR(RunAll(tasks, total < kIdsWorthSplitting ? nullptr : executor));
  for (const std::vector<size_t>& features : specs.of_table) {
    TF_RETURN_IF_ERROR(ToAbsl(engine::CheckBatch(CountKeys(*ids, features))));
  }
  return absl::OkStatus();
}

absl::Status RowsIn(const FeatureSpecs& specs, const std::vector<FeatureIds>& ids,
                    const std::vector<const Tensor*>& tensors, std::vector<FeatureRows>* rows) {
  rows->clear();
  size_t column = 0;
  for (size_t f = 0; f < ids.size(); ++f) {
    const FeatureSpec& spec = specs.features[f];
    const size_t bytes = engine::SizeOf(spec.real), dim = specs.dims[spec.table];
    const size_t width = specs.joined ? specs.joined_dim : dim;
    const Tensor& tensor = *tensors[specs.joined ? 0 : f];
    tensorflow::TensorShape shape = ids[f].outer();
    TF_RETURN_IF_ERROR(shape.AddDimWithStatus(static_cast<int64_t>(width)));
    if (tensor.shape() != shape || tensor.dtype() != ToTensorFlow(spec.real)) {
      return WrongShape("rows must be as many as the segments of each feature", tensor);
    }
    char* const data = const_cast<char*>(tensor.tensor_data().data());
    rows->push_back({data + column * bytes, width * bytes});
    if (specs.joined) column += dim;
  }
  return absl::OkStatus();
}

absl::Status GradientsIn(const FeatureSpecs& specs, const std::vector<FeatureIds>& ids,
                         const tensorflow::OpInputList& gradients, std::vector<FeatureRows>* rows) {
  const size_t wanted = specs.joined ? 1 : ids.size();
  if (gradients.size() != static_cast<int>(wanted)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there must be one gradient per output. Received: ", gradients.size(), " for ", wanted));
  }
  std::vector<const Tensor*> tensors;
  for (const Tensor& each : gradients) tensors.push_back(&each);
  return RowsIn(specs, ids, tensors, rows);
}

bool IsPlain(const FeatureSpecs& specs, const std::vector<FeatureIds>& ids, size_t feature) {
  const engine::DType dtype = specs.dtypes[specs.features[feature].table];
  return engine::RealOf(dtype) == dtype && ids[feature].single();
}

std::vector<FeaturePart> PartsOf(const std::vector<FeatureIds>& ids,
                                 const std::vector<size_t>& features) {
  std::vector<FeaturePart> parts;
  for (const size_t f : features) {
    const size_t count = ids[f].count();
    const size_t wanted = std::max(ids[f].keys().size, count) / kIdsPerPart + 1;
    const size_t number = std::min(wanted, count);
    for (size_t i = 0; i < number; ++i) {
      parts.push_back({f, count * i / number, count * (i + 1) / number});
    }
  }
  return parts;
}

}  // namespace de::kernels
