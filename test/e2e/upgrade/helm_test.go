//go:build upgrade

package upgrade

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
)

// namespace is the Helm release's.
const namespace = "nodevirt"

// TestHelm upgrades a cluster with running VMs, returns and upgrades again by Helm and as docs/upgrade.md describes,
// and removes nodevirt as docs/install.md describes.
func TestHelm(t *testing.T) {
	before := whole(t)
	shims(suite.old, first, second)(t)
	for _, v := range []version{suite.old, suite.today} {
		assert.NilError(t, v.release().Push(t.Context(), suite.Cluster))
	}
	kubectl(t, "create", "namespace", namespace)
	kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	suite.old.helm(t, "install")
	upgrade := func(t *testing.T) {
		kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(suite.today.yaml, "crds"))
		suite.today.helm(t, "upgrade", "--reset-then-reuse-values")
		shims(suite.today, first, second)(t)
	}
	steps(t, []*running{start(t, "first", first), start(t, "second", second)}, []step{
		{"upgrade", upgrade, first},
		{"return", func(t *testing.T) {
			shims(suite.old, first, second)(t)
			helm(t, "rollback", "nodevirt", "1", "--namespace", namespace, "--wait")
		}, second},
		{"upgrade-again", upgrade, first},
	})
	helm(t, "uninstall", "nodevirt", "--namespace", namespace, "--wait")
	assert.NilError(t, suite.today.release().RemoveCRDs(t.Context(), suite.Cluster))
	kubectl(t, "delete", "namespace", namespace)
	assert.Equal(t, whole(t), before)
}

// whole lists the cluster's objects that are in no namespace.
func whole(t *testing.T) string {
	t.Helper()
	return kubectl(t, "get", "crds,apiservices,namespaces,runtimeclasses,clusterroles,clusterrolebindings,"+
		"mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings",
		"-o", "name")
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return clustertest.Kubectl(t, suite.Cluster, args...)
}

// helm installs the version's chart, or upgrades to it.
func (v version) helm(t *testing.T, command string, flags ...string) {
	t.Helper()
	helm(t, append([]string{
		command, "nodevirt", filepath.Join(v.yaml, "helm", "nodevirt"), "--namespace", namespace, "--set", "image.tag=" + v.name, "--wait",
	}, flags...)...)
}

// helm runs Helm as the cluster's administrator.
func helm(t *testing.T, args ...string) {
	t.Helper()
	cmd := suite.Control().Command(t.Context(), filepath.Join(suite.bin, "helm"), args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+filepath.Join(suite.PKI(), "admin.kubeconfig"))
	for _, folder := range []string{"CACHE", "CONFIG", "DATA"} {
		cmd.Env = append(cmd.Env, "HELM_"+folder+"_HOME="+t.TempDir())
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("helm %s: %v: %s", strings.Join(args, " "), err, &out)
	}
}
