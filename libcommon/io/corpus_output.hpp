#pragma once
/// A directory that appears all at once: made under a hidden name beside it, renamed at the end.

#include <optional>
#include <string>
#include <vector>

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

    /// Takes `.NAME.partial` beside `path` with what an earlier run left there.
    /// @throws UsageError when `path` exists and must not be replaced, or another process writes it
    CorpusOutput(const std::string& path, Existing existing);
    /// Without publish(): removes what was made, unless it is to be kept.
    ~CorpusOutput();
    CorpusOutput(const CorpusOutput&) = delete;
    CorpusOutput& operator=(const CorpusOutput&) = delete;

    /// Where to write.
    const std::string& directory() const { return partial_; }
    /// Removes what is in it but these (paths relative to it).
    void clear(const std::vector<std::string>& but = {});
    /// From now on, what was made stays when the run ends early.
    void keep() { kept_ = true; }
    bool is_kept() const { return kept_; }
    void forget() { kept_ = false; }
    /// As the user would name it, for messages.
    std::string shown_partial() const;
    /// Makes it durable and gives it its name, without the file `work_file`, which is there up to the last moment.
    void publish(const std::string& work_file = {});

  private:
    void lock();

    std::string shown_;  ///< as the user wrote it, for messages
    std::string path_;
    std::string parent_;
    std::string partial_;
    std::optional<File> lock_;
    bool kept_ = false;
    bool published_ = false;
};

/// Refuses an output path that cannot be used, for a run that writes nothing as well.
/// @throws UsageError
void check_corpus_output(const std::string& path, CorpusOutput::Existing existing);

}  // namespace plimsoll
