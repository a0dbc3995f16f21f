"""Clock, power and temperature of a GPU while it works: by NVML where nvidia-ml-py is installed, else by nvidia-smi."""

import re
import statistics
import subprocess
import threading

EVERY_S = 0.2
SMI_TIMEOUT_S = 10
FIELDS = ("clocks.sm", "power.draw", "temperature.gpu")
METRICS = ("gpu_clock", "gpu_power", "gpu_temperature")  # MHz, W, degrees Celsius


class Watch:
    """`with Watch(read) as watch: ...`, then `watch.rates(during)`. `read` returns a number per METRICS, or None."""

    def __init__(self, read):
        self.read, self.readings, self.over = read, [], threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(SMI_TIMEOUT_S + 1)

    def look(self):
        while not self.over.wait(EVERY_S):
            try:
                values = self.read()
            except Exception:  # a driver without that sensor, or a GPU that went away: the work tells
                return
            if values is None:
                return
            self.readings.append(values)

    def rates(self, during):
        """The median of each sensor in the second half of the time, as the answer has rates."""
        late = self.readings[len(self.readings) // 2 :]
        columns = [[value for value in column if value is not None and value > 0] for column in zip(*late)]
        return [
            {"metric": metric, "conditions": {"during": during}, "samples": [float(statistics.median(column))]}
            for metric, column in zip(METRICS, columns)
            if column
        ]


def reader(uuid):
    """A function that reads the sensors of the GPU with that UUID; one that returns None where nobody can."""
    if not uuid:
        return lambda: None
    try:
        return nvml_reader(uuid)
    except Exception:  # no nvidia-ml-py, no driver, no such GPU
        return lambda: smi_values(smi_line(uuid))


def nvml_reader(uuid):
    import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read():
        clock = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        power = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000  # it gives mW
        return clock, power, pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)

    return read


def smi_line(uuid):
    """What nvidia-smi prints, "" where there is none or it does not answer."""
    command = ["nvidia-smi", f"--id={uuid}", "--query-gpu=" + ",".join(FIELDS), "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=SMI_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def smi_values(line):
    """`1980, 687.31, 64` as numbers; None for `[N/A]`, and None of a line that is none."""
    parts = [part.strip() for part in line.strip().split(",")]
    if len(parts) != len(FIELDS):
        return None
    return [float(part) if re.fullmatch(r"\d{1,6}(\.\d{1,4})?", part) else None for part in parts]
