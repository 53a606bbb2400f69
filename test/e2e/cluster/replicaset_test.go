//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// replicas waits for the names of a set's instances, none of which is being deleted.
func replicas(t *testing.T, n int) []string {
	t.Helper()
	var names []string
	wait.Success(t, fmt.Sprintf("%d replicas", n), func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "vmi", "--selector=app=web", "-o", "jsonpath={.items[*].metadata.name}")
		if names = strings.Fields(out); err == nil && len(names) != n {
			err = fmt.Errorf("there are %q", names)
		}
		return err
	})
	return names
}

// scaled scales the example's set, waits until all its guests answer, and kubectl get has a row of it.
func scaled(t *testing.T, n int, row string) (names []string) {
	t.Helper()
	kubectl(t, "scale", "vmirs", "web", fmt.Sprintf("--replicas=%d", n))
	names = replicas(t, n)
	for _, name := range names {
		assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=Ready"))
		ip := kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
		if got := answer(t, ip); got.Hostname != name {
			t.Errorf("%s calls itself %q", name, got.Hostname)
		}
	}
	age := regexp.MustCompile(`(?m)\S+ *$`)
	want := "NAME   DESIRED   CURRENT   READY   AGE\n" + row + "\n"
	wait.Success(t, "the row of "+row, func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "vmirs", "web")
		if got := age.ReplaceAllString(out, "AGE"); err == nil && got != want {
			err = fmt.Errorf("%s, not\n%s", got, want)
		}
		return err
	})
	return names
}

// The example's set is scaled, as people do it, from nothing to three guests, to one, and to none.
func TestAReplicaSetScales(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(examples(t), "replicaset.yaml"))
	assert.NilError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmirs,vmi,pods")
			t.Logf("%s", about)
		}
		if _, err := suite.Kubectl(ctx, "delete", "vmirs", "web", "--ignore-not-found", "--cascade=foreground"); err != nil {
			t.Error(err)
		}
	})
	manifest := string(text)
	for _, change := range [][2]string{{"replicas: 3", "replicas: 0"}, {"ScheduleAnyway", "DoNotSchedule"}} {
		if !strings.Contains(manifest, change[0]) {
			t.Fatalf("the example does not say %s", change[0])
		}
		manifest = strings.Replace(manifest, change[0], change[1], 1)
	}
	assert.NilError(t, suite.Apply(t.Context(), manifest))
	names := scaled(t, 3, "web    3         3         3       AGE")
	read := imagesOf(t, "app=web")
	if len(read) != len(suite.Nodes()) {
		t.Errorf("three replicas are on %d of %d nodes: %v", len(read), len(suite.Nodes()), read)
	}
	for on, files := range read {
		if len(files) != 1 {
			t.Errorf("on %s the replicas read %d files of one image: %v", on, len(files), files)
		}
	}
	var scale struct{ Status struct{ Selector string } }
	assert.NilError(t, json.Unmarshal([]byte(kubectl(t, "get", "--raw",
		"/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets/web/scale")), &scale))
	if scale.Status.Selector != "app=web" {
		t.Errorf("an autoscaler's selector: %+v", scale)
	}
	left := scaled(t, 1, "web    1         1         1       AGE")
	if !slices.Contains(names, left[0]) {
		t.Errorf("%s is left of %s", left, names)
	}
	scaled(t, 0, "web    0                           AGE")
	if out := kubectl(t, "get", "pods", "--selector=app=web", "-o", "name"); out != "" {
		t.Errorf("pods of no replicas: %q", out)
	}
	// What is there goes with the set.
	kubectl(t, "scale", "vmirs", "web", "--replicas=1")
	replicas(t, 1)
	kubectl(t, "delete", "vmirs", "web")
	replicas(t, 0)
}
