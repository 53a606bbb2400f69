//go:build kubevirt

package kubevirt

import (
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/specs"
)

// TestWholeSuite: the file has an outcome, or why there is none, of each spec of the suite, and of no other. The suite
// lists its specs in a dry run.
func TestWholeSuite(t *testing.T) {
	report := filepath.Join(t.ArtifactDir(), "specs.json")
	runGinkgo(t, report, []string{"--dry-run"}, nil)
	suite, err := specs.ReadReport(report, "/tests/", conformance, specs.All)
	assert.NilError(t, err)
	file, _ := specs.FromFile(t, golden.Path(outcomesFile))
	for _, s := range suite.Specs() {
		if _, has := file[s]; !has {
			t.Errorf("no outcome: %s: %s", s.File, s.Text)
		}
	}
	for _, s := range file.Specs() {
		if _, has := suite[s]; !has {
			t.Errorf("not in the suite: %s: %s", s.File, s.Text)
		}
	}
}
