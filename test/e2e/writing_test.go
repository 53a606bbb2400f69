package e2e

import (
	"fmt"
	"strings"

	"github.com/nodevirt/nodevirt/test/wait"
)

// writing is a guest that writes to its disk without end.
type writing struct {
	*container
	first int64 // the first chunk that is written
}

// writer writes chunks to the disk without end, at places that nothing else uses, and keeps their
// digests in the guest's memory.
const writer = `
i=0
while [ ! -e /tmp/enough ]; do
	dd if=/dev/urandom of=/tmp/chunk bs=64k count=4 2>/dev/null
	sum=$(sha256sum </tmp/chunk)
	dd if=/tmp/chunk of=/dev/vda bs=64k seek=$((%d + i %% 40 * 4)) conv=notrunc,fsync 2>/tmp/err || echo "write $i: $(cat /tmp/err)" >>/tmp/failed
	echo "$sum" >/tmp/sum.$((i %% 40))
	i=$((i + 1))
	echo $i >/tmp/count
done
touch /tmp/ended
`

// reader reads them back from the disk.
const reader = `
echo 3 >/proc/sys/vm/drop_caches
for n in $(seq 0 39); do
	[ -e /tmp/sum.$n ] || continue
	sum=$(dd if=/dev/vda bs=64k skip=$((%d + n * 4)) count=4 2>/dev/null | sha256sum)
	[ "$sum" = "$(cat /tmp/sum.$n)" ] || echo "chunk $n differs"
done
cat /tmp/failed 2>/dev/null
true
`

// writes starts the writer in a guest of suite.agent, whose disk has a size in bytes, and waits for its
// first chunk.
func (c *container) writes(size int64) writing {
	c.t.Helper()
	w := writing{c, size/65536 - 40*4 - 1} // the end of the FAT, which holds nothing
	c.exec("sh", "-c", "mount | grep -q vda && umount /disk; (sh -c '"+fmt.Sprintf(writer, w.first)+"' >/dev/null 2>&1 &)")
	wait.Until(c.t, "the guest writes", func() bool { return c.exec("test", "-s", "/tmp/sum.0").ExitCode == 0 })
	return w
}

// sh runs a line in the guest. While the guest is stopped at an error of its disk, its agent does not
// answer.
func (w writing) sh(line string) (said string) {
	w.t.Helper()
	wait.Until(w.t, "the agent answers", func() bool {
		r, err := w.tryExec(150, "sh", "-c", line)
		said = string(r.GetStdout())
		return err == nil
	})
	return said
}

// goesOn waits until the guest has written one more chunk.
func (w writing) goesOn(what string) {
	w.t.Helper()
	was := w.sh("cat /tmp/count")
	wait.Until(w.t, "the guest writes on "+what, func() bool { return w.sh("cat /tmp/count") != was })
}

// end ends the writer, and checks what the disk has of its chunks.
func (w writing) end() {
	w.t.Helper()
	w.sh("touch /tmp/enough")
	wait.Until(w.t, "the writer ends", func() bool { return w.sh("ls /tmp/ended 2>/dev/null") != "" })
	if said := w.sh(fmt.Sprintf(reader, w.first)); said != "" {
		w.t.Errorf("of what the guest wrote: %s", said)
	}
	w.t.Logf("%s chunks were written", strings.TrimSpace(w.sh("cat /tmp/count")))
}
