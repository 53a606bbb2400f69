package ramfd

import (
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

func TestWithRAM(t *testing.T) {
	const own = `{"qom-type":"memory-backend-ram","id":"pc.ram","size":9223372036854775807}`
	args := []string{"qemu", "-machine", "q35,memory-backend=pc.ram", "-object", `{"qom-type":"secret","id":"key"}`, "-object", "iothread,id=x", "-object", own}
	got, err := withRAM(args, "/proc/self/fd/3")
	assert.NilError(t, err)
	assert.Equal(t, args[8], own)
	assert.DeepEqual(t, got[:8], args[:8])
	assert.Equal(t, got[8], `{"id":"pc.ram","mem-path":"/proc/self/fd/3","qom-type":"memory-backend-file","share":false,`+
		`"size":9223372036854775807,"x-use-canonical-path-for-ramblock-id":false}`)
	node := []string{"qemu", "-object", `{"qom-type":"memory-backend-ram","id":"ram-node0","size":1073741824}`, "-numa", "node,nodeid=0,cpus=0,memdev=ram-node0"}
	got, err = withRAM(node, "/proc/self/fd/3") // of a guest that can get more RAM
	assert.NilError(t, err)
	assert.Equal(t, got[2], `{"id":"ram-node0","mem-path":"/proc/self/fd/3","qom-type":"memory-backend-file","share":false,`+
		`"size":1073741824,"x-use-canonical-path-for-ramblock-id":false}`)
	_, err = withRAM(args[:7], "/proc/self/fd/3")
	assert.ErrorContains(t, err, "no object pc.ram")
	_, err = withRAM([]string{"qemu", "-object", `{"qom-type":"memory-backend-memfd","id":"pc.ram"}`}, "/proc/self/fd/3")
	assert.ErrorContains(t, err, "memory-backend-memfd")
}

// TestTake: only a QEMU whose environment says so gets RAM, and none starts without it.
func TestTake(t *testing.T) {
	args := []string{"qemu", "-version"}
	got, err := Take(args, []string{"HOME=/"})
	assert.NilError(t, err)
	assert.DeepEqual(t, got, args)
	_, err = Take(args, []string{Variable + "=" + filepath.Join(t.TempDir(), "none")})
	assert.ErrorContains(t, err, "get the guest's RAM")
}
