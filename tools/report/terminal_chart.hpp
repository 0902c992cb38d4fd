#pragma once
/// Charts of characters.

#include <string>
#include <vector>

#include "page.hpp"

namespace plimsoll
{

/// A picture of dots: with braille 2 x 4 in a character, in ASCII 1 x 2 (' . ' for the lower, ' ' ' for the upper, ':' for both).
class DotCanvas
{
  public:
    /// `columns` and `rows` of characters.
    DotCanvas(int columns, int rows, Glyphs glyphs);

    int dots_across() const { return columns_ * dots_x_; }
    int dots_down() const { return rows_ * dots_y_; }
    /// Outside: nothing. (0, 0) is the upper left.
    void set(int x, int y);
    /// One string for each row of characters.
    std::vector<std::string> lines() const;

  private:
    int columns_, rows_;
    Glyphs glyphs_;
    int dots_x_, dots_y_;
    std::vector<bool> dots_;
};

/// Lines of a chart with its axes: at most `width` columns, `rows` rows of picture and one of steps. Where several points of the
/// curve share a column it shows the least to the largest of them.
std::vector<std::string> curve_lines(const Curve& curve, const ChartAxis& x, AxisScale scale, Glyphs glyphs, int width,
                                     int rows);

/// A bar of `share` (0..1) of `width` columns, padded with spaces.
std::string share_bar(double share, int width, Glyphs glyphs);

/// Characters that a terminal shows, of UTF-8 without wide or combining ones.
std::size_t shown_width(const std::string& text);

}  // namespace plimsoll
