// A model that apus does not know, trained under ZeRO-2: full fine-tuning by two ranks, here two threads.
//
// The model is Qwen-like with two differences: attention and feed-forward read the same norm and are added
// side by side (one residual a block, as in GPT-J and PaLM), and the feed-forward layer is a plain squared
// ReLU. Nothing of it is registered anywhere; the engine sees nn::CausalLm and nn::Block alone.
#include <apus/base/clock.h>
#include <apus/base/error.h>
#include <apus/base/log.h>
#include <apus/comm/gloo_communicator.h>
#include <apus/comm/store.h>
#include <apus/data/dataset.h>
#include <apus/models/init_random.h>
#include <apus/nn/causal_lm.h>
#include <apus/nn/embedding.h>
#include <apus/nn/linear.h>
#include <apus/nn/rms_norm.h>
#include <apus/ops/attention.h>
#include <apus/ops/rotary.h>
#include <apus/parallel/sharded_model.h>
#include <apus/train/sft_trainer.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/relu.h>

#include <cmath>
#include <exception>
#include <iostream>
#include <thread>

namespace {

using apus::nn::NamedParameter;

constexpr int64_t kVocab = 64, kHidden = 32, kHeads = 4, kHeadDim = 8, kFfn = 96, kLayers = 2;
constexpr int kRanks = 2;

/// x + attention(norm(x)) + feed_forward(norm(x)).
class ParallelBlock final : public apus::nn::Block {
 public:
  ParallelBlock() {
    register_module("norm", norm_);
    register_module("qkv_proj", qkv_proj_);
    register_module("o_proj", o_proj_);
    register_module("up_proj", up_proj_);
    register_module("down_proj", down_proj_);
  }

  at::Tensor forward(const at::Tensor& hidden_TD, const apus::nn::PassContext& context) override {
    const at::Tensor normed_TD = norm_.forward(hidden_TD, context);
    const at::Tensor act_TF = at::relu(up_proj_.forward(normed_TD, context)).square();
    return hidden_TD + attend(normed_TD, context) + down_proj_.forward(act_TF, context);
  }

 private:
  at::Tensor attend(const at::Tensor& x_TD, const apus::nn::PassContext& context) {
    const auto parts = qkv_proj_.forward(x_TD, context).unflatten(-1, {3, kHeads, kHeadDim}).unbind(1);
    const auto turned = apus::ops::rotary(parts[0], parts[1], context.cos_TH, context.sin_TH);
    const apus::nn::RowLayout& rows = *context.rows;
    const at::Tensor y_TNH = apus::ops::attention(
        turned.q_TNH, turned.k_TKH, parts[2], {.lengths = rows.lengths, .padded_length = rows.padded_length});
    return o_proj_.forward(y_TNH.flatten(1), context);
  }

  apus::nn::RmsNorm norm_{{.size = kHidden}};
  apus::nn::Linear qkv_proj_{{.in_features = kHidden, .out_features = 3 * kHeads * kHeadDim}};
  apus::nn::Linear o_proj_{{.in_features = kHeads * kHeadDim, .out_features = kHidden}};
  apus::nn::Linear up_proj_{{.in_features = kHidden, .out_features = kFfn}};
  apus::nn::Linear down_proj_{{.in_features = kFfn, .out_features = kHidden}};
};

/// The whole model; the vocabulary projection is the embedding's own tensor.
class ParallelLm final : public apus::nn::CausalLm {
 public:
  ParallelLm() {
    register_module("embed", embed_);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      layers_.push_back(std::make_unique<ParallelBlock>());
      register_module("layers." + std::to_string(layer), *layers_.back());
    }
    register_module("norm", norm_);
    register_module("lm_head", lm_head_);
  }

  void prepare(apus::nn::PassContext& context) override {
    auto tables = apus::ops::rotary_tables(context.rows->positions_T, kHeadDim, 10000.0, at::kFloat);
    context.cos_TH = tables.cos_TH;
    context.sin_TH = tables.sin_TH;
  }
  at::Tensor embed(const at::Tensor& tokens_T, const apus::nn::PassContext& context) override {
    return embed_.forward(tokens_T, context);
  }
  std::vector<apus::nn::Block*> blocks() override {
    std::vector<apus::nn::Block*> blocks;
    for (const auto& layer : layers_) blocks.push_back(layer.get());
    return blocks;
  }
  at::Tensor final_norm(const at::Tensor& hidden_MD, const apus::nn::PassContext& context) override {
    return norm_.forward(hidden_MD, context);
  }
  at::Tensor head_weight(const apus::nn::PassContext& context) const override {
    return lm_head_.weight(context);
  }
  std::vector<NamedParameter> embed_parameters() override { return embed_.named_parameters("embed"); }
  std::vector<NamedParameter> block_parameters(int64_t index) override {
    return layers_.at(static_cast<size_t>(index))->named_parameters("layers." + std::to_string(index));
  }
  std::vector<NamedParameter> head_parameters() override {
    auto parameters = norm_.named_parameters("norm");
    parameters.push_back({"embed.weight", embed_.weight()});   // tied: listed by both of its users
    const auto copies = lm_head_.named_parameters("lm_head");  // an adapter may train a head of its own
    parameters.insert(parameters.end(), copies.begin(), copies.end());
    return parameters;
  }
  apus::nn::ShardPlan shard_plan() const override { return {}; }  // every parameter whole on every rank
  int64_t hidden_size() const override { return kHidden; }
  int64_t vocab_size() const override { return kVocab; }

 private:
  apus::nn::Embedding embed_{{.vocab_size = kVocab, .hidden_size = kHidden}};
  std::vector<std::unique_ptr<ParallelBlock>> layers_;
  apus::nn::RmsNorm norm_{{.size = kHidden}};
  apus::nn::VocabHead lm_head_{embed_};
};

/// Rows that count upwards in steps of 1 to 4: the next token follows from the two before it.
std::shared_ptr<const apus::data::SftDataset> counting_rows() {
  std::vector<apus::data::SftRow> rows;
  for (int32_t row = 0; row < 32; ++row) {
    apus::data::SftRow counted;
    for (int32_t place = 0; place < 12; ++place) {
      counted.input_ids.push_back((row * 7 + place * (1 + row % 4)) % static_cast<int32_t>(kVocab));
    }
    counted.labels = counted.input_ids;
    rows.push_back(std::move(counted));
  }
  return std::make_shared<apus::data::SftDataset>(std::move(rows));
}

/// What one rank does; returns the loss of every step.
std::vector<double> train_rank(apus::comm::Communicator& world) {
  ParallelLm model;
  apus::models::init_random(model, {.seed = 1, .standard_deviation = 0.1});
  apus::nn::make_trainable(model);
  apus::parallel::ShardedModel sharded(model, world, {.policy = apus::parallel::Zero2()});
  apus::train::SftTrainerOptions options;
  options.trainer.max_steps = 40;
  options.trainer.micro_batch_rows = 4;
  options.trainer.update.lr = 1e-2;
  apus::SystemClock clock;
  apus::NullLogger logger;
  std::vector<double> losses;
  apus::train::TrainerContext context{.clock = &clock, .logger = &logger};
  context.callbacks.on_step = [&](const apus::train::StepReport& report) { losses.push_back(report.loss); };
  apus::train::SftTrainer(sharded, options, context).run(counting_rows());
  return losses;
}

/// Starts the ranks as threads; a real job has one process a rank (see ../dpo_lora).
std::vector<double> train_all() {
  const auto store = apus::comm::make_hash_store();
  const auto device = apus::comm::GlooDevice::create();
  std::vector<double> losses[kRanks];
  std::exception_ptr errors[kRanks];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<apus::comm::Communicator> world;
      try {
        world = apus::comm::GlooCommunicator::create(store, {.rank = rank, .size = kRanks, .device = device});
        losses[rank] = train_rank(*world);
      } catch (const std::exception& error) {
        errors[rank] = std::current_exception();
        if (world) world->abort(error.what());  // the other rank must not wait for this one
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return losses[0];
}

}  // namespace

int main() {
  try {
    const std::vector<double> losses = train_all();
    for (size_t step = 0; step < losses.size(); step += 5)
      std::cout << "step " << step << " loss " << losses[step] << "\n";
    std::cout << "last loss " << losses.back() << "\n";
    APUS_CHECK(std::isfinite(losses.back()) && losses.back() < 0.5 * losses.front(), Error,
               "the loss did not halve: from ", losses.front(), " to ", losses.back());
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
