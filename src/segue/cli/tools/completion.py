"""`segue completion SHELL`: prints a completion script."""

import click
from click.shell_completion import get_completion_class

from segue.views import printing

_HOW = {
    "bash": "echo 'eval \"$(segue completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(segue completion zsh)\"' >> ~/.zshrc",
    "fish": "segue completion fish > ~/.config/fish/completions/segue.fish",
}


@click.command(epilog="\b\n" + "\n".join(_HOW.values()))
@click.argument("shell", type=click.Choice(list(_HOW)))
def command(shell: str) -> None:
    """Print a script that lets SHELL complete commands, options, runs and agents. To use it in
    every new shell, run one of these once:"""
    from segue.cli import cli

    kind = get_completion_class(shell)
    if kind is not None:
        printing.say(kind(cli, {}, "segue", "_SEGUE_COMPLETE").source())
