# Draws what a run did over its steps, from the file that param_sync --series writes:
#   gnuplot -e "series='run.tsv'; picture='run.svg'" plot.gp
set terminal svg size 900,1100 dynamic background rgb 'white'
set output picture
set multiplot layout 3,1 title "param_sync: " . system("sed -n '2s/^# //p' '" . series . "'") noenhanced
set grid
set ytics nomirror
set y2tics
set yrange [0:*]
set xlabel 'step'

set key center right
set ylabel 'training loss (nats)'
set y2label 'test accuracy'
set y2range [0:1]
plot series using 1:2 with lines linecolor rgb '#4477aa' title 'loss of a step, mean over the nodes', \
     series using 1:3 axes x1y2 with points pointtype 7 linecolor rgb '#cc6677' title 'test accuracy'

set key top left
set ylabel 'waited for weights (ms a step)'
set y2label 'gradients pushed (MB)'
set y2range [0:*]
plot series using 1:5 with lines linecolor rgb '#ddaa33' title 'forward kernels waited, mean over the nodes', \
     series using 1:4 axes x1y2 with lines linecolor rgb '#4477aa' title 'pushed until then, all nodes'

stats series using 7 nooutput
if (STATS_records > 0) {
  ranks = STATS_max
  set key top left
  unset y2tics
  unset y2label
  set ylabel 'others held up (ms of a step)'
  plot for [rank = 0 : ranks] series using 1:($7 == rank ? $8 : NaN) with impulses title sprintf('by rank %d', rank)
}
