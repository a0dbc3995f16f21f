{{/* The pod that is one node; seatrial/platforms/kubernetes/pod.py says why each field is there. */}}
{{- define "testbed.pod" -}}
{{- $machine := include "testbed.machine" . | fromYaml -}}
{{- $gpus := include "testbed.gpusPerNode" . | int -}}
{{- $volumes := include "testbed.volumes" . | fromYamlArray -}}
metadata:
  labels:
    {{- include "testbed.labels" . | nindent 4 }}
    seatrial/role: node
  annotations:
    kubectl.kubernetes.io/default-container: node
    {{- with $machine.annotations }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- if not .Values.network.hostNetwork }}
    {{- with $machine.network_annotations }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- end }}
    {{- if .Values.volumes.gcsMounts }}
    gke-gcsfuse/volumes: "true"
    gke-gcsfuse/cpu-limit: "0"
    gke-gcsfuse/memory-limit: "0"
    gke-gcsfuse/ephemeral-storage-limit: "0"
    {{- end }}
    {{- with .Values.tasSettings.topologyRequest }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- with .Values.annotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  automountServiceAccountToken: false
  securityContext: {seccompProfile: {type: RuntimeDefault}}
  {{- if eq .Values.launcher "job" }}
  subdomain: {{ .Release.Name | quote }}
  {{- end }}
  {{- if $machine.host_ipc }}
  hostIPC: true
  {{- end }}
  {{- if .Values.network.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.serviceAccountName }}
  serviceAccountName: {{ . | quote }}
  {{- end }}
  {{- with .Values.workload.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with merge (deepCopy .Values.nodeSelector) $machine.node_selector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  tolerations: {{- concat $machine.tolerations .Values.tolerations | toYaml | nindent 4 }}
  affinity: {{- include "testbed.affinity" . | nindent 4 }}
  {{- with include "testbed.claims" . }}
  resourceClaims: {{- . | nindent 4 }}
  {{- end }}
  volumes:
    - name: keys
      secret: {secretName: {{ .Values.keys.existingSecret | default .Release.Name | quote }}, defaultMode: 0400}
    - name: shared-memory
      emptyDir:
        medium: Memory
        sizeLimit: {{ .Values.workload.sharedMemory | default (ternary $machine.shared_memory "1Gi" (gt $gpus 0)) }}
    {{- with $machine.volumes }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- range $index, $volume := $volumes }}
    - name: volume-{{ $index }}
      {{- toYaml $volume.source | nindent 6 }}
    {{- end }}
    {{- if .Values.workload_launcher }}
    - name: launcher
      configMap: {name: {{ .Release.Name }}-launcher}
    {{- end }}
  {{- with $machine.init_containers }}
  initContainers: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: node
      image: {{ required "workload.image: is required; the nodes run its sshd, Open MPI and torch" .Values.workload.image | quote }}
      {{- with .Values.workload.imagePullPolicy }}
      imagePullPolicy: {{ . }}
      {{- end }}
      {{- if .Values.workload_launcher }}
      args: [sh, /workload/launcher/start-workload]
      {{- end }}
      env: {{- include "testbed.env" . | nindent 8 }}
      ports:
        - {name: ssh, containerPort: {{ int .Values.network.sshPort }}}
      startupProbe:
        exec: {command: [seatrial-ready]}
        periodSeconds: 1
        timeoutSeconds: 5
        failureThreshold: 960
      {{- if or $gpus .Values.workload.resources }}
      resources:
        limits:
          {{- if $gpus }}
          {{ .Values.workload.gpuResource }}: {{ $gpus | quote }}
          {{- end }}
          {{- range $name, $quantity := .Values.workload.resources }}
          {{ $name }}: {{ $quantity | quote }}
          {{- end }}
        {{- with include "testbed.claims" . | fromYamlArray }}
        claims:
          {{- range . }}
          - name: {{ .name }}
          {{- end }}
        {{- end }}
      {{- end }}
      securityContext:
        {{- if .Values.network.privileged }}
        privileged: true
        {{- end }}
        allowPrivilegeEscalation: {{ .Values.network.privileged }}
        capabilities:
          drop: [ALL]
          add: [CHOWN, DAC_OVERRIDE, FOWNER, NET_BIND_SERVICE, SETGID, SETUID, SYS_CHROOT{{ if $gpus }}, IPC_LOCK{{ end }}]
      volumeMounts:
        - {name: keys, mountPath: /etc/seatrial, readOnly: true}
        - {name: shared-memory, mountPath: /dev/shm}
        {{- with $machine.mounts }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- range $index, $volume := $volumes }}
        - name: volume-{{ $index }}
          mountPath: {{ $volume.mountPath | quote }}
          {{- if $volume.readOnly }}
          readOnly: true
          {{- end }}
        {{- end }}
        {{- if .Values.workload_launcher }}
        - {name: launcher, mountPath: /workload/launcher, readOnly: true}
        {{- end }}
{{- end -}}

{{/* The machine family's, with what the values say in its place; then the values' own; then what comes from Secrets. */}}
{{- define "testbed.env" -}}
{{- $plain := dict }}{{ $secret := list }}{{ $names := list -}}
{{- range concat .Values.network.ncclSettings .Values.workload.envs -}}
{{- if hasKey . "value" }}{{ $_ := set $plain .name .value }}{{ $names = append $names .name }}{{ else }}{{ $secret = append $secret . }}{{ end -}}
{{- end -}}
- name: SEATRIAL_SSH_PORT
  value: {{ int .Values.network.sshPort | quote }}
- name: SEATRIAL_MAX_SECONDS
  value: {{ int .Values.deadlineSeconds | quote }}
{{- $machine := include "testbed.machine" . | fromYaml }}
{{- range concat $machine.defaults $machine.env (include "testbed.launcherEnv" . | fromYamlArray) }}
- name: {{ .name }}
  value: {{ hasKey $plain .name | ternary (get $plain .name) .value | quote }}
{{- $names = without $names .name -}}
{{- end }}
{{- range $names }}
- name: {{ . }}
  value: {{ get $plain . | quote }}
{{- end }}
{{- with $secret }}
- name: SEATRIAL_PASS_ENV
  value: {{ range $index, $each := . }}{{ if $index }} {{ end }}{{ $each.name }}{{ end }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What every rank must get over what the machine family's script says: NAME=VALUE, the values' in the machine's place. */}}
{{- define "testbed.exports" -}}
{{- $values := dict -}}
{{- range concat (include "testbed.machine" . | fromYaml).env .Values.network.ncclSettings .Values.workload.envs -}}
{{- if and (hasPrefix "NCCL_" .name) (hasKey . "value") }}{{ $_ := set $values .name .value }}{{ end -}}
{{- end -}}
{{- range $name, $value := $values }}
- {{ printf "%s=%s" $name $value | quote }}
{{- end }}
{{- end -}}

{{/* What a launcher goes by, in the recipes' words; only there, because torch reads some of them too. */}}
{{- define "testbed.launcherEnv" -}}
{{- if .Values.workload_launcher -}}
{{- $nodes := include "testbed.nodes" . | int -}}
{{- $gpus := include "testbed.gpusPerNode" . | int -}}
- {name: HOSTFILE, value: /workload/launcher/hostfile}
- {name: NNODES, value: {{ $nodes | quote }}}
- {name: GPUS_PER_NODE, value: {{ $gpus | quote }}}
- {name: WORLD_SIZE, value: {{ mul $nodes (max 1 $gpus) | quote }}}
- {name: MASTER_ADDR, value: {{ include "testbed.hostPrefix" . }}0.{{ .Release.Name }}}
- {name: MASTER_PORT, value: "6002"}
- {name: MPI_EXPORTS, value: {{ include "testbed.exports" . | fromYamlArray | join " -x " | printf "-x %s" | trimSuffix "-x " | quote }}}
{{- end -}}
{{- end -}}

{{- define "testbed.affinity" -}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - labelSelector:
        matchLabels: {{- include "testbed.selector" . | nindent 10 }}
      topologyKey: kubernetes.io/hostname
{{- if or .Values.targetNodes .Values.avoidNodes }}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          {{- with .Values.targetNodes }}
          - {key: kubernetes.io/hostname, operator: In, values: {{ toJson . }}}
          {{- end }}
          {{- with .Values.avoidNodes }}
          - {key: kubernetes.io/hostname, operator: NotIn, values: {{ toJson . }}}
          {{- end }}
{{- end }}
{{- end -}}

{{/* What each pod claims; templates/claims.yaml makes the templates. */}}
{{- define "testbed.claims" -}}
{{- $machine := include "testbed.machine" . | fromYaml -}}
{{- range $name, $wanted := dict "compute-domain-channel" $machine.compute_domain "rdma" $machine.rdma_claims }}
{{- if $wanted }}
- name: {{ $name }}
  resourceClaimTemplateName: {{ $.Release.Name }}-{{ $name }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where the values' own volumes appear, and what they are of. */}}
{{- define "testbed.volumes" -}}
{{- range .Values.volumes.gcsMounts }}
- mountPath: {{ .mountPath | default "/gcs" | quote }}
  readOnly: {{ .readOnly | default false }}
  source:
    csi:
      driver: gcsfuse.csi.storage.gke.io
      {{- if .readOnly }}
      readOnly: true
      {{- end }}
      volumeAttributes:
        bucketName: {{ .bucketName | quote }}
        {{- with .mountOptions }}
        mountOptions: {{ . | quote }}
        {{- end }}
        {{- if $.Values.network.hostNetwork }}
        hostNetworkPodKSA: "true"
        {{- end }}
{{- end }}
{{- range .Values.volumes.nfsMounts }}
- mountPath: {{ .mountPath | quote }}
  readOnly: {{ .readOnly | default false }}
  source:
    nfs:
      server: {{ .server | quote }}
      path: {{ .path | quote }}
      {{- if .readOnly }}
      readOnly: true
      {{- end }}
{{- end }}
{{- range .Values.volumes.pvcMounts }}
- mountPath: {{ .mountPath | quote }}
  readOnly: {{ .readOnly | default false }}
  source:
    persistentVolumeClaim:
      claimName: {{ .claimName | quote }}
      {{- if .readOnly }}
      readOnly: true
      {{- end }}
{{- end }}
{{- with .Values.volumes.ssdMountPath }}
- mountPath: {{ . | quote }}
  source:
    hostPath: {path: /mnt/stateful_partition/kube-ephemeral-ssd, type: Directory}
{{- end }}
{{- end -}}
