//go:build critest

package critest

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// goldenFile holds how critest ends without the shim: the versions of the tools, an empty line, and
// each spec.
const goldenFile = "direct.golden"

// versions are those of the programs in a folder that the result depends on, as the golden file has
// them.
func versions(t *testing.T, bin string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"critest", "containerd", "runc"} {
		info, err := buildinfo.ReadFile(filepath.Join(bin, name))
		if err != nil {
			t.Fatalf("which version is %s? %v", name, err)
		}
		fmt.Fprintf(&b, "%s %s\n", info.Main.Path, info.Main.Version)
	}
	return b.String()
}

// kept is the result without the shim from the golden file, or nil if that is of other versions, or
// must be regenerated.
func kept(t *testing.T, versions string) result {
	t.Helper()
	text, err := os.ReadFile(golden.Path(goldenFile))
	if golden.FlagUpdate() || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	assert.NilError(t, err)
	specs, current := strings.CutPrefix(string(text), versions+"\n")
	if !current {
		return nil
	}
	r, err := readResult(specs)
	assert.NilError(t, err)
	return r
}

// keep writes the golden file.
func keep(t *testing.T, versions string, r result) {
	t.Helper()
	assert.NilError(t, os.WriteFile(golden.Path(goldenFile), []byte(versions+"\n"+r.text()), 0o644))
	if !golden.FlagUpdate() {
		t.Errorf("testdata/%s was of other versions than\n%sand has been regenerated: commit it", goldenFile, versions)
	}
}
