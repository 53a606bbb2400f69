package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// samples runs go test on packages of testdata.
func samples(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	code, err := run(t.Context(), args, &b)
	assert.NilError(t, err)
	return code, b.String()
}

// summaryOf is the end of an output, without what differs between two runs.
func summaryOf(t *testing.T, out string) string {
	t.Helper()
	_, s, found := strings.Cut(out, "What failed:\n")
	if !found {
		t.Fatalf("no summary in\n%s", out)
	}
	if len(s) > summaryBytes+gistBytes {
		t.Errorf("a summary of %d bytes", len(s))
	}
	return regexp.MustCompile(`\d+\.\d+s`).ReplaceAllString(s, "TIME")
}

func TestSummary(t *testing.T) {
	code, out := samples(t, "-p", "1", "./testdata/sample", "./testdata/main")
	if code != 1 {
		t.Errorf("code %d", code)
	}
	golden.Assert(t, summaryOf(t, out), "summary.golden")
	if all := strings.Count(out, "--- a line of a console\n"); all < 2000 {
		t.Errorf("of the 2000 lines of a failed test %d are printed", all)
	}
	if strings.Contains(out, "all is well") {
		t.Error("what a test that passed wrote is printed")
	}
}

// TestReason: what failed besides tests is shown whatever logs are printed before it, and even if a test failed, too: that
// test passing later is no proof that all is well.
func TestReason(t *testing.T) {
	for _, tests := range []string{"TestGood", "TestBad"} {
		code, out := samples(t, "-again=2", "./testdata/reason", "-run", tests)
		got := summaryOf(t, out)
		want := "testdata/reason (TIME)\nsuite failed: census of the node: it holds other things than before:\n+ link tap0\n+ mount /mnt\n"
		if code != 1 || !strings.Contains(got, want) || strings.Contains(got, "log line") {
			t.Errorf("%s: code %d, summary\n%s", tests, code, got)
		}
		if strings.Contains(got, "FAIL: TestBad") != (tests == "TestBad") || strings.Contains(out, "A second try") {
			t.Errorf("%s: the output is\n%s", tests, out)
		}
	}
}

// TestCrash: the test that crashed is named, and those that waited for it are not.
func TestCrash(t *testing.T) {
	code, out := samples(t, "./testdata/crash")
	got := summaryOf(t, out)
	if code != 1 || strings.Count(got, "--- FAIL: ") != 1 || !strings.Contains(got, "--- FAIL: TestCrashes") ||
		!strings.Contains(got, "panic: assignment to entry in nil map") {
		t.Errorf("code %d, summary\n%s", code, got)
	}
}

func TestBuildFailure(t *testing.T) {
	code, out := samples(t, "./testdata/broken")
	if got := summaryOf(t, out); code != 1 || !strings.Contains(got, "broken_test.go:5:33: undefined: undefined") {
		t.Errorf("code %d, summary\n%s", code, got)
	}
}

func TestTimeout(t *testing.T) {
	code, out := samples(t, "-timeout", "1s", "./testdata/hangs")
	got := summaryOf(t, out)
	if code != 1 || strings.Count(got, "--- FAIL: ") != 1 || !strings.Contains(got, "--- FAIL: TestHangs (unfinished)") ||
		!strings.Contains(got, "panic: test timed out after 1s") {
		t.Errorf("code %d, summary\n%s", code, got)
	}
}

// TestPassed: a package that passed has a line, and all that its tests say where that is asked for.
func TestPassed(t *testing.T) {
	code, out := samples(t, "-run", "TestGood", "./testdata/sample", "./testdata/crash")
	if lines := regexp.MustCompile(`(?m)^ok  \t.*$`).FindAllString(out, -1); code != 0 || len(lines) != 2 || strings.Count(out, "\n") != 2 {
		t.Errorf("code %d, output\n%s", code, out)
	}
	code, out = samples(t, "-v", "-run", "TestGood", "./testdata/sample")
	if code != 0 || !strings.Contains(out, "all is well") || !strings.Contains(out, "--- PASS: TestGood") {
		t.Errorf("with -v: code %d, output\n%s", code, out)
	}
}

// TestAgain: a test that passes at the second try is named, and no failure. One that fails twice is, and
// so are too many failures, and a build's.
func TestAgain(t *testing.T) {
	t.Setenv("SAMPLE_TRIES", filepath.Join(t.TempDir(), "tries"))
	code, out := samples(t, "-again=1", "./testdata/once", "./testdata/crash", "-run", "TestOnce|TestGood")
	if want := "\nFailed once, and passed at the second try:\n  TestOnce of "; code != 0 || strings.Count(out, want) != 1 {
		t.Errorf("code %d, output\n%s", code, out)
	}
	for name, args := range map[string][]string{
		"fails twice": {"-again=2", "./testdata/sample"},
		"too many":    {"-again=1", "./testdata/sample"},
		"no build":    {"-again=1", "./testdata/broken"},
		"a crash":     {"-again=1", "./testdata/crash"},
	} {
		code, out := samples(t, args...)
		if tries := strings.Count(out, "What failed:"); code != 1 || tries > 2 || tries == 2 != (name == "fails twice") {
			t.Errorf("%s: code %d after %d tries", name, code, tries)
		}
	}
}

// TestSlowest: the slowest tests are listed, the slowest first, without their subtests.
func TestSlowest(t *testing.T) {
	var b bytes.Buffer
	r := newReport(&b, false)
	for name, seconds := range map[string]float64{"TestQuick": 1, "TestSlow": 11, "TestSlowest": 70, "TestSlowest/part": 69} {
		r.add(event{Action: "pass", Package: "p", Test: name, Elapsed: seconds})
	}
	r.slow()
	if want := "\nThe slowest tests:\n     70 s  TestSlowest of p\n     11 s  TestSlow of p\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
