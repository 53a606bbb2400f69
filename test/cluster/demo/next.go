package demo

import "fmt"

// next prints what the user can do now.
func (d *demo) next() {
	fmt.Fprintf(d.out, `
The cluster is up. Try, in "make cluster-shell":

  kubectl get vm,vmi,pods -o wide     the VM, its instance and its pod
  POD=$(kubectl get pod -l app=example -o name)
  kubectl logs $POD                   its console
  kubectl attach -it $POD             type there; ^C leaves
  kubectl exec client -- wget -qO- http://example/
  kubectl port-forward $POD 8080:80
  kubectl describe vmi example
  kubectl patch vm example --type=merge -p '{"spec":{"runStrategy":"Halted"}}'   ACPI shutdown
  kubectl apply -f examples/pod.yaml  a plain pod as a VM
  kubectl delete vm example

or from elsewhere, with

  export KUBECONFIG=%s PATH=%s/bin:$PATH

"make cluster" again uses this cluster; "make cluster-down" removes it.
`, d.cluster.Kubeconfig(), d.top)
}
