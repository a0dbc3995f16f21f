{{/* What the machine family has, from facts.yaml, which is written from seatrial's own code. */}}
{{- define "testbed.machine" -}}
{{ index (.Files.Get "facts.yaml" | fromYaml).machines .Values.machine | toYaml }}
{{- end -}}

{{- define "testbed.nodes" -}}
{{- $has := (include "testbed.machine" . | fromYaml).gpus | int -}}
{{- if $has }}{{ max 1 (div (int .Values.workload.gpus) $has) }}{{ else }}{{ int .Values.workload.nodes | max 1 }}{{ end -}}
{{- end -}}

{{- define "testbed.gpusPerNode" -}}
{{ div (int .Values.workload.gpus) (include "testbed.nodes" . | int) }}
{{- end -}}

{{/* What tells this release from others. Not seatrial/run-id: `seatrial reap` removes what has that and no owner. */}}
{{- define "testbed.selector" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
seatrial/role: node
{{- end -}}

{{- define "testbed.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Of every object: its name when it is called as the release. */}}
{{- define "testbed.metadata" -}}
name: {{ .Release.Name | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "testbed.labels" . | nindent 2 }}
{{- end -}}

{{/* The name of each node without its index, as Service and subdomain have it; JobSet puts its own words between. */}}
{{- define "testbed.hostPrefix" -}}
{{ .Release.Name }}-{{ if eq .Values.launcher "jobset" }}node-0-{{ end }}
{{- end -}}

{{/* What stands behind the name of each node in a hostfile. */}}
{{- define "testbed.slots" -}}
slots={{ max 1 (include "testbed.gpusPerNode" . | int) }} port={{ int .Values.network.sshPort }}
{{- end -}}

{{- define "testbed.hostfile" -}}
{{- range $index := until (include "testbed.nodes" . | int) -}}
{{ include "testbed.hostPrefix" $ }}{{ $index }}.{{ $.Release.Name }} {{ include "testbed.slots" $ }}
{{ end -}}
{{- end -}}

{{/* The command that prints the same. */}}
{{- define "testbed.seq" -}}
{{- $host := printf "%s%%.0f.%s" (include "testbed.hostPrefix" .) .Release.Name -}}
seq -f '{{ $host }} {{ include "testbed.slots" . }}' 0 {{ sub (include "testbed.nodes" . | int) 1 }}
{{- end -}}

{{/* NCCL's settings are on the command line: the script of a machine family may have set others after the pod's. */}}
{{- define "testbed.mpirun" -}}
mpirun --hostfile /tmp/hostfile --bind-to none --mca orte_keep_fqdn_hostnames 1 \
{{- if not .Values.network.hostNetwork }}
    --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
{{- end }}
{{- range include "testbed.exports" . | fromYamlArray }}
    -x '{{ . }}' \
{{- end }}
    hostname
{{- end -}}
