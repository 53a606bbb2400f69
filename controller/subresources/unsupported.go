package subresources

// unsupported returns KubeVirt's other subresources, with the answer to their callers.
func unsupported() map[string]string {
	return map[string]string{ //nolint:gosec // names of subresources, and no credentials
		"backup":                     "backups are made by VirtualMachineBackup objects",
		"sev/fetchcertchain":         "nodevirt does not attest guests: a VM's start waits for no session",
		"sev/querylaunchmeasurement": "nodevirt does not attest guests: a VM's start waits for no session",
		"sev/setupsession":           "nodevirt does not attest guests: a VM's start waits for no session",
		"sev/injectlaunchsecret":     "nodevirt does not attest guests: a VM's start waits for no session",
	}
}
