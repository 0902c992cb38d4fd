#include "plan/step_program.hpp"

#include <gtest/gtest.h>
TEST(StepProgram, Builds) { plimsoll::StepInputs i; (void)i; }
