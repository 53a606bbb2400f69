package hostcpu_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nodevirt/nodevirt/shim/hostcpu"
)

// tree makes a folder like /sys/devices/system.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestRead(t *testing.T) {
	got, err := hostcpu.Read(tree(t, map[string]string{
		"cpu/online":                             "0-2,5",
		"cpu/cpu0/topology/thread_siblings_list": "0,2",
		"cpu/cpu1/topology/thread_siblings_list": "1",
		"cpu/cpu2/topology/thread_siblings_list": "0,2",
		"node/node0/cpulist":                     "0,2",
		"node/node1/cpulist":                     "1,5",
	}))
	want := []hostcpu.CPU{{0, 0, 0}, {1, 1, 1}, {2, 0, 0}, {5, 5, 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := hostcpu.Read(t.TempDir()); err == nil {
		t.Error("a folder without processors was read")
	}
	if all, err := hostcpu.Read("/sys/devices/system"); err != nil || len(all) == 0 {
		t.Errorf("this node: %v, %v", all, err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "3": {3}, "4-5,0-1,1": {0, 1, 4, 5}, "2-1": nil} {
		if got, err := hostcpu.Parse(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"a", "-1", "1-", "0-99999999999", "1 2"} {
		if got, err := hostcpu.Parse(text); err == nil {
			t.Errorf("%q became %v", text, got)
		}
	}
	if got := hostcpu.Format([]int{3, 1}); got != "3,1" {
		t.Error(got)
	}
}
