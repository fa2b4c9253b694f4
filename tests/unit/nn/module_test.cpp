#include "apus/nn/module.h"

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

struct Leaf : Module {
  Leaf() { weight = register_parameter("weight", random_tensor({2, 3}, 1)); }
  void drop() { unregister_parameter("weight"); }
  at::Tensor add(const std::string& name, at::Tensor tensor) {
    return register_parameter(name, std::move(tensor));
  }
  at::Tensor weight;
};

struct Tree : Module {
  Tree() {
    register_module("layers.0", first);
    register_module("layers.1", second);
    scale = register_parameter("scale", random_tensor({1}, 2));
  }
  void adopt(const std::string& name, Module& child) { register_module(name, child); }
  Leaf first, second;
  at::Tensor scale;
};

TEST(Module, ListsParametersWithFullNamesInOrder) {
  const Tree tree;
  std::vector<std::string> names;
  for (const NamedParameter& parameter : tree.named_parameters("model")) names.push_back(parameter.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"model.scale", "model.layers.0.weight", "model.layers.1.weight"}));
  EXPECT_EQ(tree.named_parameters()[0].name, "scale");
}

TEST(Module, ListsItselfAndItsChildren) {
  Tree tree;
  const auto modules = tree.named_modules();
  ASSERT_EQ(modules.size(), 3u);
  EXPECT_EQ(modules[0].first, "");
  EXPECT_EQ(modules[0].second, &tree);
  EXPECT_EQ(modules[2].first, "layers.1");
  EXPECT_EQ(modules[2].second, &tree.second);
}

TEST(Module, AHandleSharesTheModulesTensor) {
  Leaf leaf;
  const at::Tensor other = random_tensor({2, 3}, 9);
  leaf.named_parameters()[0].tensor.set_data(other);
  EXPECT_EQ(leaf.weight.const_data_ptr(), other.const_data_ptr());
}

TEST(Module, MakeTrainableReachesEveryParameter) {
  Tree tree;
  EXPECT_FALSE(tree.scale.requires_grad());
  make_trainable(tree);
  for (const NamedParameter& parameter : tree.named_parameters())
    EXPECT_TRUE(parameter.tensor.requires_grad());
}

TEST(Module, AnUnregisteredParameterIsGone) {
  Leaf leaf;
  leaf.drop();
  EXPECT_TRUE(leaf.named_parameters().empty());
  EXPECT_THROW(leaf.drop(), ConfigError);
}

TEST(Module, RefusesATakenNameAndATensorThatIsNoLeaf) {
  Tree tree;
  Leaf leaf;
  EXPECT_THROW(leaf.add("weight", random_tensor({1}, 1)), ConfigError);
  EXPECT_THROW(leaf.add("other", at::Tensor()), ShapeError);
  EXPECT_THROW(leaf.add("other", random_leaf({1}, 1) * 2), ShapeError);
  EXPECT_THROW(tree.adopt("layers.0", leaf), ConfigError);
  EXPECT_THROW(tree.adopt("self", tree), ConfigError);
}

}  // namespace
}  // namespace apus::nn
