#pragma once
/// The pieces of a text under a plan, one after another: for whoever wants pieces and no ids.

#include <memory>
#include <string>
#include <string_view>

#include "io/tokenizer/split_plan.hpp"

namespace plimsoll
{

/// One thread's way through a plan, which outlives it.
class PieceSplitter
{
  public:
    explicit PieceSplitter(const SplitPlan& plan) : plan_(plan), scanner_(plan.rules)
    {
        if (plan.kind == SplitPlan::Kind::stages) { stages_ = std::make_unique<StageSplitter>(plan.stages); }
    }

    /// Calls take(std::string_view) for each piece of `text`, well-formed UTF-8, in order.
    template<class Take>
    void split(std::string_view text, Take&& take)
    {
        if (text.empty()) { return; }
        if (plan_.prefix_space && text.front() != ' ')
        {
            prefixed_.assign(1, ' ').append(text);
            text = prefixed_;
        }
        switch (plan_.kind)
        {
            case SplitPlan::Kind::whole: take(text); return;
            case SplitPlan::Kind::scanner:
                scan(text, take, [this](const char* at, const char* end) { return scanner_.next(at, end); });
                return;
            case SplitPlan::Kind::deepseek:
                deepseek_.start();
                scan(text, take, [this](const char* at, const char* end) { return deepseek_.next(at, end); });
                return;
            case SplitPlan::Kind::stages:
                for (const std::string_view piece : stages_->split(text)) { take(piece); }
                return;
        }
    }

  private:
    template<class Take, class Next>
    static void scan(std::string_view text, Take& take, const Next& next)
    {
        const char* at = text.data();
        const char* const end = at + text.size();
        while (at < end)
        {
            const char* const stop = next(at, end);
            take(std::string_view(at, static_cast<std::size_t>(stop - at)));
            at = stop;
        }
    }

    const SplitPlan& plan_;
    PieceScanner scanner_;
    DeepseekScanner deepseek_;
    std::unique_ptr<StageSplitter> stages_;
    std::string prefixed_;
};

}  // namespace plimsoll
