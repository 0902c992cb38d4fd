# metrics_field NAME FILE: reads JSON lines of a run, prints "step value attempt" of the rows that have the field at their top level;
# objects inside a row may use the same name (peak_by_category has a "loss" too). To be sourced.
metrics_field()
{
    sed -E ':inner; s/"[a-z_]+":\{[^{}]*\},?//; t inner' "$2" |
        sed -n -E "s/^.*\"step\":([0-9]+),.*\"$1\":([-0-9.e+]+),.*\"attempt\":([0-9]+).*$/\1 \2 \3/p"
}
