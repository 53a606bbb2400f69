//go:build cluster && slow

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// A guest behind masquerade has its pod's NetworkPolicies: who may reach it, and whom it may reach.
func TestANetworkPolicyLimitsAGuest(t *testing.T) {
	t.Parallel()
	vmi := strangersVMI("limited", func(spec, _, _ object) { spec["terminationGracePeriodSeconds"] = 0 })
	vmi["metadata"].(object)["labels"] = object{"app": "limited"}
	name := made(t, vmi)
	pod := plainPod("friend", suite.busybox, "httpd", "-f", "-p", "80", "-h", "/etc")
	pod["metadata"].(object)["labels"] = object{"app": "friend"}
	friend := ready(t, pod)
	answerOf(t, name, "") // the shell's pod reaches it while there is no policy
	ip := vmiField(t, name, ".status.interfaces[0].ipAddress")
	fetch := "/cgi-bin/fetch?http://"
	theirs, hers := field(t, vm, ".status.podIP"), field(t, friend, ".status.podIP")

	reaches := func(from, host, path string) {
		t.Helper()
		wait.Success(t, fmt.Sprintf("an answer to %s from %s%s", from, host, path), func(ctx context.Context) error {
			page, err := askFrom(ctx, from, host, path)
			if err == nil && page == "" {
				err = errors.New("an empty page")
			}
			return err
		})
	}
	cut := func(from, host, path string) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("no answer to %s from %s%s", from, host, path), func() bool {
			for range 2 { // a busy guest may be too slow once
				if page, err := askFrom(t.Context(), from, host, path); err == nil && page != "" {
					return false
				}
			}
			return true
		})
	}
	policy := func(name, kind string, rules ...object) {
		t.Helper()
		made(t, object{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": object{"name": name},
			"spec": object{
				"podSelector": object{"matchLabels": object{"app": "limited"}},
				"policyTypes": []string{kind}, map[string]string{"Ingress": "ingress", "Egress": "egress"}[kind]: rules,
			},
		})
	}
	friends := object{"podSelector": object{"matchLabels": object{"app": "friend"}}}

	policy("ingress", "Ingress")
	cut(shell, ip, "/cgi-bin/info")
	cut(friend, ip, "/cgi-bin/info")
	policy("friends", "Ingress", object{"from": []object{friends}, "ports": []object{{"port": 80}}})
	reaches(friend, ip, "/cgi-bin/info")
	cut(shell, ip, "/cgi-bin/info")

	reaches(friend, ip, fetch+theirs+"/")
	policy("egress", "Egress", object{"to": []object{friends}})
	cut(friend, ip, fetch+theirs+"/")
	reaches(friend, ip, fetch+hers+"/passwd")

	for _, name := range []string{"ingress", "friends", "egress"} {
		_, err := suite.Kubectl(t.Context(), "delete", "networkpolicy", name)
		assert.NilError(t, err)
	}
	reaches(shell, ip, fetch+theirs+"/")
}
