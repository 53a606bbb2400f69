//go:build cluster && examples

package cluster

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

var kubevirtExamples = flag.String("kubevirt-examples", "",
	"`folder` with KubeVirt's example manifests")

// manifest is one of KubeVirt's examples, and what became of it.
type manifest struct {
	file, kind, name string
	says             string // what its user data prints, "" if that is no script
	runs             string // why it does not run, "" if it does or if nothing is to run
	refusal          string // "" if it was taken
}

// machine tells whether something is to run.
func (m *manifest) machine() bool {
	return m.kind == "VirtualMachine" || m.kind == "VirtualMachineInstance"
}

// TestKubeVirtsExamples applies each manifest of a folder as it is, waits until the machines run, and
// writes docs/kubevirt-examples.md anew; guests are small ones under the names of the images. The folder
// is nobody's copy here, so only those run this who have it. Docs' own tests hold the page against what
// controller/admission's tests refuse.
func TestKubeVirtsExamples(t *testing.T) {
	if *kubevirtExamples == "" {
		t.Fatal("say -kubevirt-examples FOLDER")
	}
	assert.NilError(t, pushKubeVirtsDisks(t.Context()))
	withNetworks(t)
	files, err := filepath.Glob(filepath.Join(*kubevirtExamples, "*.yaml"))
	assert.NilError(t, err)
	var first, machines []*manifest // what machines refer to comes first
	for _, file := range files {
		m, err := readManifest(file)
		assert.NilError(t, err)
		if m.machine() {
			machines = append(machines, m)
		} else {
			first = append(first, m)
		}
	}
	for _, m := range first {
		t.Cleanup(func() { m.delete(t) })
		m.apply(t)
	}
	var all sync.WaitGroup
	places := make(chan struct{}, 3)
	for _, m := range machines {
		all.Go(func() {
			places <- struct{}{}
			m.apply(t)
			if m.refusal == "" {
				m.run(t)
				m.delete(t)
			}
			<-places
		})
	}
	all.Wait()
	writeExamples(t, append(first, machines...))
}

// pushKubeVirtsDisks pushes a small guest under the names of the examples' images.
func pushKubeVirtsDisks(ctx context.Context) error {
	disk, err := guest.TinyWithSATA(ctx, suite.Control().GuestOptions()) // where KubeVirt has disks of which nothing is said
	if err != nil {
		return err
	}
	img, err := images.RegistryDisk(disk, images.DiskOptions{})
	if err != nil {
		return err
	}
	for _, name := range []string{"cirros", "alpine", "fedora-with-test-tooling"} {
		name = "kubevirt/" + name + "-container-disk"
		for _, tag := range []string{"-demo:devel", ":devel"} {
			if _, err := suite.Push(ctx, name+tag, img); err != nil {
				return err
			}
		}
	}
	return nil
}

func readManifest(file string) (*manifest, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var object struct {
		Kind     string
		Metadata struct{ Name string }
	}
	err = yaml.Unmarshal(text, &object)
	m := &manifest{file: file, kind: object.Kind, name: object.Metadata.Name}
	if says := regexp.MustCompile(`#!/bin/sh\s+echo '([^']+)'`).FindSubmatch(text); says != nil {
		m.says = string(says[1])
	}
	return m, err
}

// denied is what kubectl says before the sentence that matters.
var denied = regexp.MustCompile(`(?s)^.*exit status 1: (The \S+ "[^"]*" is invalid: *|.*denied the request: |.*(no matches for kind))`)

// unlike is what is another in each run.
var unlike = regexp.MustCompile(`/var/run/netns/[^: ]+|virt-launcher-[^: ]+`)

func (m *manifest) apply(t *testing.T) {
	_, err := suite.Kubectl(t.Context(), "apply", "--server-side", "-f", m.file)
	if err == nil {
		return
	}
	m.refusal = denied.ReplaceAllString(err.Error(), "$2")
	m.refusal = regexp.MustCompile(`(?m)^(\d+ problems:\n|\s*\* )`).ReplaceAllString(m.refusal, "")
	m.refusal, _, _ = strings.Cut(m.refusal, "\nensure CRDs")
}

// run starts a machine and waits until its guest says something: what its user data prints, if it has any.
func (m *manifest) run(t *testing.T) {
	ctx := t.Context()
	if m.kind == "VirtualMachine" {
		_, err := suite.Kubectl(ctx, "patch", "vm", m.name, "--type=merge", "-p", `{"spec":{"runStrategy":"Always"}}`)
		if err != nil {
			m.runs = err.Error()
			return
		}
	}
	err := suite.WaitFor(ctx, "vmi/"+m.name, "jsonpath={.status.phase}=Running")
	if err == nil {
		err = says(ctx, m.name, m.says)
	}
	if err != nil {
		why, _ := suite.Kubectl(ctx, "get", "vmi,vm", "--field-selector=metadata.name="+m.name, "-o", "jsonpath={range .items[*]}"+
			`{.status.conditions[?(@.type=="Ready")].message}{"\n"}{.status.conditions[?(@.type=="Failure")].message}{"\n"}{end}`)
		m.runs = cmp.Or(strings.TrimSpace(unlike.ReplaceAllString(why, "…")), err.Error())
		t.Logf("%s: %v; conditions say: %s", m.file, err, why)
	}
}

func (m *manifest) delete(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if m.refusal != "" {
		return
	}
	if _, err := suite.Kubectl(ctx, "delete", "--ignore-not-found", "-f", m.file); err != nil {
		t.Error(err)
	}
}

// outcome is what stands in the table.
func (m *manifest) outcome() string {
	switch {
	case strings.HasPrefix(m.refusal, "no matches for kind"):
		return "no such kind here"
	case m.refusal != "":
		return "refused"
	case !m.machine():
		return "taken"
	case m.runs != "":
		return "taken, does not run"
	}
	return "runs"
}

// writeExamples writes the table, and below it why what is refused is.
func writeExamples(t *testing.T, all []*manifest) {
	t.Helper()
	top, err := checkout()
	assert.NilError(t, err)
	file := filepath.Join(top, "docs", "kubevirt-examples.md")
	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	slices.SortFunc(all, func(a, b *manifest) int { return strings.Compare(a.file, b.file) })
	head, _, _ := strings.Cut(string(text), "| manifest |")
	page := head + "| manifest | kind | |\n|---|---|---|\n"
	why := map[string][]string{} // manifests, by why
	for _, m := range all {
		page += fmt.Sprintf("| `%s` | %s | %s |\n", filepath.Base(m.file), m.kind, m.outcome())
		for line := range strings.Lines(m.refusal + m.runs) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			why[line] = append(why[line], filepath.Base(m.file))
		}
	}
	page += "\n"
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		page += wrapped("- `"+reason+"`: "+strings.Join(why[reason], ", ")) + "\n"
	}
	assert.NilError(t, os.WriteFile(file, []byte(page), 0o644))
}
