// Factors of gradients go over real sockets, and the gradient is made again where they arrive.
#include "executor/factor_trial.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace param_sync;
using executor::FactorLayout;
using executor::FactorTrial;
using executor::FactorTrialSettings;

FactorTrialSettings trial_of(const FactorLayout& layout, gpusock::LinkKind link) {
  FactorTrialSettings settings;
  settings.layout = layout;
  settings.link = link;
  settings.repeats = 1;
  return settings;
}

TEST(Factors, AreSentAndTheGradientIsMadeAgain) {
  for (const gpusock::LinkKind link : {gpusock::LinkKind::p2p, gpusock::LinkKind::tcp}) {
    for (const FactorLayout& layout :
         {FactorLayout{1, 1, 1, 2}, FactorLayout{7, 5, 3, 2}, FactorLayout{33, 1030, 8, 3}}) {
      const FactorTrial trial = try_factors(trial_of(layout, link));
      EXPECT_LE(trial.error, 1e-6) << layout.rows << " x " << layout.columns;
      EXPECT_LE(trial.error_max, 1e-6);
      EXPECT_TRUE(trial.same_everywhere);
    }
  }
}

/// A layer as large as VGG-16's last one, with a step's usual samples.
TEST(Factors, OfManySamplesAreAsExact) {
  const FactorTrial trial = try_factors(trial_of({64, 4096, 32, 2}, gpusock::LinkKind::p2p));
  EXPECT_LE(trial.error, 1e-6);
  EXPECT_TRUE(trial.same_everywhere);
}

TEST(Factors, OfNothingAreRefused) {
  gpusock::Context context;
  const gpusock::DeviceBuffer<float> some(context, 4);
  for (const FactorLayout& layout :
       {FactorLayout{0, 1, 1, 1}, FactorLayout{1, 0, 1, 1}, FactorLayout{1, 1, 0, 1}, FactorLayout{1, 1, 1, 0}}) {
    EXPECT_THROW(rebuild_gradient(context, layout, some.data(), some.data()), gpusock::Error);
  }
}

}  // namespace
