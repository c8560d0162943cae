#pragma once
/// @file Layers of well-known models: how many parameters each has, and how long it computes. For training in virtual
/// time; nothing here computes anything.

#include <string>
#include <vector>

namespace param_sync::models {

/// One layer with its weights and biases.
struct Layer {
  std::string name;
  double parameters = 0;  ///< 0: it only computes
  int tensors = 0;
  double forward_flops = 0;  ///< of one sample: two for each multiply-add; the backward pass takes twice as many
  int rows = 0;              ///< of a fully connected layer's weights, whose gradient is a sum of products of two
  int columns = 0;           ///< vectors for each sample: outputs and inputs. 0: of another layer
};

struct Model {
  std::string name;
  std::vector<Layer> layers;  ///< in the order of the forward pass

  double parameters() const;
  int tensors() const;
  double forward_flops() const;  ///< of one sample
};

/// "vgg16", "vgg19-22k", "resnet50", "gpt2".
const std::vector<std::string>& model_names();

/// Throws std::invalid_argument where there is no such model: its message lists those that there are.
///
/// A sample is an image of 224 x 224 pixels, or 1,024 tokens. FLOPs are those of convolutions, matrix products and
/// attention; activations, normalization and the optimizer are left out.
///  - vgg16: Simonyan and Zisserman, 2015, configuration D. vgg19-22k: configuration E with 21,841 classes.
///  - resnet50: He et al., 2016, with the stride in the 3 x 3 convolution. A batch normalization is in its
///    convolution's layer.
///  - gpt2: Radford et al., 2019, "small". The output projection uses the token embedding's weights, so that their
///    gradient is complete when the backward pass ends; they are the first layer.
Model model(const std::string& name);

}  // namespace param_sync::models
