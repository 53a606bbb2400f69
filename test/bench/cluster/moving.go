package cluster

// dirties is a program that rewrites memory for as long as the guest runs.
const dirties = `#!/bin/sh
mount -t tmpfs -o size=48m mem /mem
while :; do dd if=/dev/urandom of=/mem/part bs=1M count=4 2>/dev/null
for i in 0 1 2 3 4 5 6 7 8; do dd if=/mem/part of=/mem/all bs=4M seek=$i conv=notrunc 2>/dev/null; done
done >/dev/null 2>&1 </dev/null &
`

// fills is a program that writes most of 1 GiB of memory once.
const fills = `#!/bin/sh
mount -t tmpfs -o size=700m mem /mem
dd if=/dev/urandom of=/mem/part bs=1M count=16 2>/dev/null
i=0
while [ $i -lt 39 ]; do dd if=/mem/part of=/mem/all bs=16M seek=$i conv=notrunc 2>/dev/null; i=$((i+1)); done
`

// moving is a guest that moves, and the program that it runs, if any.
type moving struct{ name, memory, program string }
