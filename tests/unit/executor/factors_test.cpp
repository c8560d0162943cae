// Factors of gradients go over real sockets, and the gradient is made again where they arrive.
#include "trial/factor_trial.hpp"

#include "param_sync/schedule/schedule.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace {

using namespace param_sync;
using executor::FactorLayout;
using executor::FactorTrial;
using executor::FactorTrialSettings;

FactorTrialSettings trial_of(const FactorLayout& layout, gpusock::LinkKind link, const std::string& scheme = "sfb") {
  FactorTrialSettings settings;
  settings.scheme = scheme;
  settings.layout = layout;
  settings.link = link;
  settings.repeats = 1;
  return settings;
}

TEST(Factors, AreSentAndTheGradientIsMadeAgain) {
  for (const char* scheme : {"sfb", "adam-fc"}) {
    for (const gpusock::LinkKind link : {gpusock::LinkKind::p2p, gpusock::LinkKind::tcp}) {
      for (const FactorLayout& layout :
           {FactorLayout{1, 1, 1, 2}, FactorLayout{7, 5, 3, 3}, FactorLayout{33, 1030, 8, 3}}) {
        if (schedule_test::kFew && layout.rows != 7) continue;
        const FactorTrial trial = try_factors(trial_of(layout, link, scheme));
        EXPECT_LE(trial.error, 1e-6) << scheme << layout.rows << " x " << layout.columns;
        EXPECT_LE(trial.error_max, 1e-6);
        EXPECT_TRUE(trial.same_everywhere);
        const std::uint64_t others = layout.ranks - 1;
        EXPECT_EQ(trial.sent_floats, scheme == std::string("sfb")
                                         ? others * layout.floats_of_rank()
                                         : std::max(layout.floats_of_rank(), others * layout.gradient_floats()));
      }
    }
  }
  EXPECT_THROW(try_factors(trial_of({1, 1, 1, 2}, gpusock::LinkKind::p2p, "ring")), schedule::Error);
}

/// Poseidon's rule, for each layer.
TEST(Factors, HybridSendsNoMoreThanTheCheaperOfTheTwo) {
  int of_factors = 0, whole = 0;
  for (const FactorLayout& layout : {FactorLayout{8, 8, 1, 2}, FactorLayout{8, 8, 4, 2}, FactorLayout{8, 8, 5, 2},
                                     FactorLayout{40, 300, 4, 3}, FactorLayout{40, 300, 30, 3}}) {
    if (schedule_test::kFew && layout.rows != 8) continue;
    const FactorTrial trial = try_factors(trial_of(layout, gpusock::LinkKind::p2p, "hybrid"));
    const std::uint64_t factors = (layout.ranks - 1) * layout.floats_of_rank();
    ++(trial.of_factors ? of_factors : whole);
    EXPECT_EQ(trial.sent_floats, std::min(factors, trial.dense_floats)) << layout.rows << " " << layout.samples;
    EXPECT_LE(trial.error, 1e-6);
    EXPECT_TRUE(trial.same_everywhere);
  }
  EXPECT_GT(of_factors, 0);
  EXPECT_GT(whole, 0);
}

/// A layer as large as VGG-16's last one, with a step's usual samples.
TEST(Factors, OfManySamplesAreAsExact) {
  if (schedule_test::kFew) return;  // more of the same numbers
  const FactorTrial trial = try_factors(trial_of({64, 4096, 32, 2}, gpusock::LinkKind::p2p));
  EXPECT_LE(trial.error, 1e-6);
  EXPECT_LE(trial.error, trial.error_allowed);
  EXPECT_TRUE(trial.same_everywhere);
}

TEST(Factors, ManySamplesMayRoundMore) {
  if (schedule_test::kFew) return;
  const FactorTrial few = try_factors(trial_of({3, 3, 32, 2}, gpusock::LinkKind::p2p));
  const FactorTrial many = try_factors(trial_of({3, 3, 32768, 2}, gpusock::LinkKind::p2p));
  EXPECT_LE(few.error, few.error_allowed);
  EXPECT_LT(few.error_allowed, 1.5e-6);
  EXPECT_GT(many.error, few.error_allowed) << "then one bound would do for all";
  EXPECT_LE(many.error, many.error_allowed);
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
