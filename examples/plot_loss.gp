# Loss curves of train_digits: gnuplot -e "dir='build/demo'" examples/plot_loss.gp  -> dir/loss.svg
set datafile separator ','
set terminal svg size 800,500 font 'sans,14' background '#ffffff'
set output dir . '/loss.svg'
set title 'Handwritten digits on a mixed cluster (the curves should coincide)'
set xlabel 'epoch'
set ylabel 'training loss'
set logscale y
set grid
set key top right
plot dir . '/loss.csv' using 1:2 with lines lw 7 lc rgb '#1f77b4' title 'all ranks, float32', \
     dir . '/loss.csv' using 1:3 with lines lw 3 lc rgb '#2ca02c' title 'all ranks, gradients as bfloat16', \
     dir . '/loss.csv' using 1:4 with lines lw 2 dashtype 2 lc rgb '#d62728' title 'one rank'
