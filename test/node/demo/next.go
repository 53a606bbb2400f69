package demo

import "fmt"

// next prints what the user can do now.
func (d *demo) next() {
	vm, p := short(d.vm.container), short(d.vm.id)
	fmt.Fprintf(d.out, `
The node is up; crictl works in it. Try, in "make shell":

  crictl pods                     the VM's pod beside the other one
  crictl ps -a                    the VM as a container
  crictl inspectp %[2]s   the pod: IP, runtime handler
  crictl inspect %[1]s    the VM
  crictl logs %[1]s       its console
  crictl exec %[3]s wget -qO- http://%[4]s/
  crictl images                   disks are images
  crictl info                     the runtime handler "vm"
  crictl stop %[1]s       ACPI shutdown, then power off
  crictl rm %[1]s
  crictl stopp %[2]s && crictl rmp %[2]s
  virsh list                      what libvirt runs

"make run" again uses this node; "make down" removes it.
`, vm, p, short(d.client.container), d.address)
}
