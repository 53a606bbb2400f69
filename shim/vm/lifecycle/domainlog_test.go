package lifecycle_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestDomainLog: QEMU's log stays bounded while a guest makes QEMU write without
// end. It keeps its beginning, and QEMU continues where it ends.
func TestDomainLog(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "a")
		n.run(t)
		path := n.layout.DomainLog(n.rec(t, id).Domain.Name)
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		assert.NilError(t, err)
		defer func() { assert.NilError(t, f.Close()) }()
		_, err = f.WriteString("the command line\n")
		assert.NilError(t, err)
		for range 5 {
			_, err := f.Write(bytes.Repeat([]byte("x"), 4<<20))
			assert.NilError(t, err)
			time.Sleep(2 * time.Second)
			st, err := os.Stat(path)
			assert.NilError(t, err)
			assert.Assert(t, st.Size() <= 1<<20, "the log has %d bytes", st.Size())
		}
		_, err = f.WriteString("the last line\n")
		assert.NilError(t, err)
		time.Sleep(2 * time.Second)
		text, err := os.ReadFile(path)
		assert.NilError(t, err)
		assert.Assert(t, strings.HasPrefix(string(text), "the command line\n") && strings.HasSuffix(string(text), "xthe last line\n"))
	})
}
