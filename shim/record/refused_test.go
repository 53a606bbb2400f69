package record_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/shim/record"
)

// TestRefused: a container's record that cannot be used affects no other, stays as it
// is, and gives what can be read of it.
func TestRefused(t *testing.T) {
	s, root := open(t)
	whole := container()
	if err := errors.Join(s.PutContainer(whole), s.PutSandbox(sandbox())); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(root, "containers", idB, "record.json"))
	if err != nil {
		t.Fatal(err)
	}
	good := strings.ReplaceAll(string(file), idB, idC)
	newer := strings.Replace(good, `"version": 3`, `"version": 4`, 1)
	// What is known: the pod, and the user ID, which is later in the record.
	type known struct{ pod, user bool }
	for name, c := range map[string]struct {
		text, err string
		known
	}{
		"newer": {newer, "record is of a newer version of nodevirt (4, this one reads up to 3): " +
			"run that version, or remove the VM with it first", known{true, true}},
		"newer, other fields": {strings.Replace(newer, `"config": {`, `"config": 5, "old": {`, 1), "newer version", known{true, true}},
		"newer, other form":   {`{"version": 99, "id": {"of": "another form"}}`, "newer version", known{}},
		"cut off":             {good[:strings.Index(good, `"domain"`)], "it is truncated", known{true, false}},
		"empty":               {"", "it is truncated", known{}},
		"noise at the end":    {good[:strings.Index(good, `"exitCode"`)] + "\x00\x00", "record is broken", known{}},
		"zeroes":              {strings.Repeat("\x00", 512), "record is broken", known{}},
		"garbage":             {"\x7fELF garbage", "record is broken", known{}},
		"another kind":        {"[]", "record is broken", known{}},
		"no version":          {"{}", "version 0 is not supported", known{}},
		"older version":       {strings.Replace(good, `"version": 3`, `"version": 2`, 1), "version 2 is not supported", known{true, true}},
		"no content":          {`{"version": 3}`, "it belongs to container", known{}},
		"another container's": {string(file), "it belongs to container", known{}},
		"unknown state":       {strings.Replace(good, `"exited"`, `"asleep"`, 1), `unknown state "asleep"`, known{true, true}},
		"wrong types":         {`{"version": 3, "id": 5}`, "record is broken", known{}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(s.ContainerDir(idC), "record.json")
			write(t, path, c.text)
			if broken, err := s.MoveBroken(); err != nil || len(broken) != 0 {
				t.Errorf("moved: %v, %v", broken, err)
			}
			refused, err := s.Refused()
			if err != nil || len(refused) != 1 {
				t.Fatalf("%+v, %v", refused, err)
			}
			r := refused[0]
			if r.Kind != "container" || r.ID != idC || r.Path != path || !strings.Contains(r.Err.Error(), c.err) {
				t.Errorf("%+v", r)
			}
			if r.Container.ID != idC || r.Container.State != record.Unknown {
				t.Errorf("container %q in state %q", r.Container.ID, r.Container.State)
			}
			got := known{r.Container.Sandbox.Value.GetMetadata() != nil && r.Container.SandboxID == idA, r.Container.Domain.UID == whole.Domain.UID}
			if diff := cmp.Diff(c.known, got, cmp.AllowUnexported(known{})); diff != "" {
				t.Errorf("known (-want +got):\n%s", diff)
			}
			all, err := s.Containers()
			if err != nil || len(all) != 1 || all[0].ID != idB {
				t.Errorf("the others: %v, %v", all, err)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != c.text {
				t.Errorf("the file is now %q, %v", now, err)
			}
		})
	}
}

// TestRefusedUnreadable: of one file the disk returns an error.
func TestRefusedUnreadable(t *testing.T) {
	s, root := open(t)
	if err := errors.Join(s.PutContainer(container()), os.MkdirAll(filepath.Join(s.ContainerDir(idC), "record.json"), 0o700),
		os.Mkdir(filepath.Join(root, "sandboxes", idC+".json"), 0o700)); err != nil {
		t.Fatal(err)
	}
	refused, err := s.Refused()
	if err != nil || len(refused) != 2 {
		t.Fatalf("%+v, %v", refused, err)
	}
	if all, err := s.Containers(); err != nil || len(all) != 1 {
		t.Errorf("the others: %v, %v", all, err)
	}
}

// TestRefusedSandboxes: records of sandboxes that a newer version wrote.
func TestRefusedSandboxes(t *testing.T) {
	s, root := open(t)
	if err := errors.Join(s.PutSandbox(sandbox()), s.PutIntent(idB, record.Sandbox{Config: sandbox().Config})); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{idA + ".json", idB + ".intent"} {
		path := filepath.Join(root, "sandboxes", name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, strings.Replace(string(text), `"version": 3`, `"version": 4`, 1))
	}
	refused, err := s.Refused()
	if err != nil || len(refused) != 2 {
		t.Fatalf("%+v, %v", refused, err)
	}
	for _, r := range refused {
		if !errors.Is(r.Err, record.ErrNewer) {
			t.Errorf("%s: %v", r.Kind, r.Err)
		}
		if r.Kind == "sandbox" && (r.Sandbox.ID != idA || r.Sandbox.Handler != "vm" || r.Sandbox.Config.Value.GetMetadata().GetName() != "pod") {
			t.Errorf("known of the sandbox: %+v", r.Sandbox)
		}
	}
	sandboxes, err := s.Sandboxes()
	intents, err2 := s.Intents()
	if err := errors.Join(err, err2); err != nil || len(sandboxes) != 0 || len(intents) != 0 {
		t.Errorf("%v, %v, %v", sandboxes, intents, err)
	}
}
