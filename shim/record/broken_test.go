package record_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
)

func TestMoveBroken(t *testing.T) {
	s, root := open(t)
	whole := container()
	if err := errors.Join(s.PutContainer(whole), s.PutSandbox(sandbox()), s.PutIntent(idB, record.Sandbox{Config: sandbox().Config})); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(root, "containers", idB, "record.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":               "",
		"cut off":             string(good[:len(good)/2]),
		"zeroes":              strings.Repeat("\x00", 512),
		"garbage":             "\x7fELF garbage",
		"another kind":        "[]",
		"no version":          "{}",
		"older version":       strings.Replace(string(good), `"version": 3`, `"version": 2`, 1),
		"no content":          `{"version": 3}`,
		"another container's": string(good),
		"unknown state":       strings.ReplaceAll(strings.Replace(string(good), `"exited"`, `"asleep"`, 1), idB, idC),
		"wrong types":         `{"version": 3, "id": 5}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := s.ContainerDir(idC)
			write(t, filepath.Join(dir, "record.json"), text)
			write(t, filepath.Join(dir, "disk.qcow2"), "the guest's")
			broken, err := s.MoveBroken()
			if err != nil || len(broken) != 1 || broken[0].Kind != "container" || broken[0].ID != idC ||
				!strings.Contains(broken[0].Err.Error(), "record.json: record is broken: ") {
				t.Fatalf("%+v, %v", broken, err)
			}
			if disk, err := os.ReadFile(filepath.Join(broken[0].Path, "disk.qcow2")); err != nil || string(disk) != "the guest's" {
				t.Errorf("the disk did not come along: %q, %v", disk, err)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the folder is still there")
			}
			ids, err := s.BrokenContainers()
			if err != nil || len(ids) == 0 || ids[0] != idC {
				t.Errorf("broken containers: %v, %v", ids, err)
			}
		})
	}
	for path, kind := range map[string]string{idC + ".json": "sandbox", idC + ".intent": "intent"} {
		write(t, filepath.Join(root, "sandboxes", path), `{"version": 3, "id": "x"}`)
		broken, err := s.MoveBroken()
		if err != nil || len(broken) != 1 || broken[0].Kind != kind || broken[0].ID != idC {
			t.Errorf("%s: %+v, %v", path, broken, err)
		}
	}
	// The others are as they were, and a newer version's stay where they are.
	newer := filepath.Join(root, "containers", idC, "record.json")
	write(t, newer, `{"version": 99, "id": {"of": "another form"}}`)
	if broken, err := s.MoveBroken(); err != nil || len(broken) > 0 {
		t.Errorf("of sound and newer records: %+v, %v", broken, err)
	}
	if _, err := s.Containers(); !errors.Is(err, record.ErrNewer) {
		t.Errorf("a newer version's record: %v", err)
	}
	if err := s.RemoveContainer(idC); err != nil {
		t.Fatal(err)
	}
	containers, err := s.Containers()
	sandboxes, err2 := s.Sandboxes()
	intents, err3 := s.Intents()
	if err := errors.Join(err, err2, err3); err != nil || len(containers) != 1 || len(sandboxes) != 1 || len(intents) != 1 {
		t.Errorf("left: %d containers, %d sandboxes, %d intents, %v", len(containers), len(sandboxes), len(intents), err)
	}
}
