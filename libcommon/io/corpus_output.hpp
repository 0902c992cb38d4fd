#pragma once
/// A directory that appears all at once: made under a hidden name beside it, renamed at the end.

#include <optional>
#include <string>

#include "io/file.hpp"

namespace plimsoll
{

class CorpusOutput
{
  public:
    enum class Existing
    {
        refuse,
        replace
    };

    /// Takes `.NAME.partial` beside `path`, clearing what a killed run left there.
    /// @throws UsageError when `path` exists and must not be replaced, or another process writes it
    CorpusOutput(const std::string& path, Existing existing);
    /// Without publish(): removes what was made.
    ~CorpusOutput();
    CorpusOutput(const CorpusOutput&) = delete;
    CorpusOutput& operator=(const CorpusOutput&) = delete;

    /// Where to write.
    const std::string& directory() const { return partial_; }
    /// Makes it durable and gives it its name.
    void publish();

  private:
    void lock();

    std::string shown_;  ///< as the user wrote it, for messages
    std::string path_;
    std::string parent_;
    std::string partial_;
    std::optional<File> lock_;
    bool published_ = false;
};

/// Refuses an output path that cannot be used, for a run that writes nothing as well.
/// @throws UsageError
void check_corpus_output(const std::string& path, CorpusOutput::Existing existing);

}  // namespace plimsoll
