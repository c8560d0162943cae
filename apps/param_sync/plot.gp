# Loss and test accuracy over the steps, from the file that param_sync --series writes:
#   gnuplot -e "series='run.tsv'; picture='run.svg'" plot.gp
set terminal svg size 900,500 dynamic background rgb 'white'
set output picture
set key center right
set grid
set xlabel 'step'
set ylabel 'training loss (nats)'
set y2label 'test accuracy'
set ytics nomirror
set y2tics
set yrange [0:*]
set y2range [0:1]
plot series using 1:2 with lines linecolor rgb '#4477aa' title 'loss of a step, mean over the nodes', \
     series using 1:3 axes x1y2 with points pointtype 7 linecolor rgb '#cc6677' title 'test accuracy'
